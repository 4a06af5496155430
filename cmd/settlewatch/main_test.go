package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"settlewatch": func() {
			// As main does; a test binary has a main of its own.
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			// Keys cost next to nothing here: a second for each passphrase adds up.
			env := system()
			env.sandbox = processSandbox()
			a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: env, json: asksJSON(os.Args[1:]), keyCost: 4}
			root := a.root()
			root.SetArgs(os.Args[1:])
			os.Exit(a.finish(ctx, a.execute(ctx, root)))
		},
		"settlewatch-attempts": attempts,
	})
}

func TestScript(t *testing.T) {
	repository, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			e.Setenv("HOME", home)
			e.Setenv("XDG_CONFIG_HOME", "")
			e.Setenv("TMPDIR", filepath.Join(e.WorkDir, ".tmp"))
			return os.MkdirAll(home, 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// record NAME [DIR] copies a recorded trace; its root is .trace unless
			// said otherwise.
			"record": func(ts *testscript.TestScript, _ bool, args []string) {
				to := ".trace"
				if len(args) > 1 {
					to = args[1]
				}
				ts.Check(os.CopyFS(ts.MkAbs(filepath.Join(to, "events")),
					os.DirFS(filepath.Join(repository, "testdata", "runs", args[0], "events"))))
			},
			// vector NAME copies a whole parity case.
			"vector": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(os.CopyFS(ts.MkAbs(args[0]), os.DirFS(filepath.Join(repository, "testdata", "parity", args[0]))))
			},
			// append FILE TEXT appends without a newline, line FILE TEXT with one.
			"append": func(ts *testscript.TestScript, _ bool, args []string) { appendTo(ts, args[0], args[1]) },
			"line":   func(ts *testscript.TestScript, _ bool, args []string) { appendTo(ts, args[0], args[1]+"\n") },
			"link": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(os.Link(ts.MkAbs(args[0]), ts.MkAbs(args[1])))
			},
			"mode": func(ts *testscript.TestScript, _ bool, args []string) {
				bits, err := strconv.ParseUint(args[0], 8, 32)
				ts.Check(err)
				ts.Check(os.Chmod(ts.MkAbs(args[1]), os.FileMode(bits)))
			},
			// damage DIR N makes a root of N runs with a line nobody can read.
			"damage": func(ts *testscript.TestScript, _ bool, args []string) {
				n, err := strconv.Atoi(args[1])
				ts.Check(err)
				events := ts.MkAbs(filepath.Join(args[0], "events"))
				ts.Check(os.MkdirAll(events, 0o700))
				for i := range n {
					ts.Check(os.WriteFile(filepath.Join(events, fmt.Sprintf("bad-%02d.ndjson", i)), []byte("no JSON\n"), 0o600))
				}
			},
			// walk DIR LIMIT COUNT goes through all pages of a list with the cursors
			// they hand out: each operation once, COUNT in all.
			"walk": func(ts *testscript.TestScript, _ bool, args []string) {
				seen := map[string]bool{}
				for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
					command := []string{"list", "--json", "--dir", args[0], "--limit", args[1]}
					if cursor != "" {
						command = append(command, "--cursor", cursor)
					}
					ts.Check(ts.Exec("settlewatch", command...))
					var page struct {
						Operations []struct {
							Run string  `json:"run_id"`
							ID  *string `json:"operation_id"`
						}
						Next string `json:"next_cursor"`
					}
					ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &page))
					for _, row := range page.Operations {
						name := row.Run + " null"
						if row.ID != nil {
							name = row.Run + " id " + *row.ID
						}
						if seen[name] {
							ts.Fatalf("page %d shows %s again", pages+1, name)
						}
						seen[name] = true
					}
					if cursor = page.Next; len(page.Operations) == 0 && cursor != "" {
						ts.Fatalf("page %d is empty and not the last", pages+1)
					}
				}
				if fmt.Sprint(len(seen)) != args[2] {
					ts.Fatalf("%d operations, want %s", len(seen), args[2])
				}
			},
			// exits STATUS COMMAND... holds when the command ends with that status.
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				got := "0"
				var exit *exec.ExitError
				if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
					got = strconv.Itoa(exit.ExitCode())
				} else {
					ts.Check(err)
				}
				if got != args[0] {
					ts.Fatalf("status %s, want %s", got, args[0])
				}
			},
			// review NAME keeps the id of the review that the last command opened.
			"review": func(ts *testscript.TestScript, _ bool, args []string) {
				id := regexp.MustCompile(`r-[0-9a-f]{24}`).FindString(ts.ReadFile("stdout"))
				if id == "" {
					ts.Fatalf("no review was opened")
				}
				ts.Setenv(args[0], id)
			},
			// operators FILE writes a policy with the entry the last command printed.
			"operators": func(ts *testscript.TestScript, _ bool, args []string) {
				entry := regexp.MustCompile(`(?m)^\{"operators":.*$`).FindString(ts.ReadFile("stdout"))
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(entry), 0o600))
			},
			// edit FILE OLD NEW replaces a text in a file, once.
			"edit": func(ts *testscript.TestScript, _ bool, args []string) {
				old := ts.ReadFile(args[0])
				if !strings.Contains(old, args[1]) {
					ts.Fatalf("%s has no %q", args[0], args[1])
				}
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Replace(old, args[1], args[2], 1)), 0o600))
			},
			"pipe": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(makePipe(ts.MkAbs(args[0])))
			},
			// empty FILE... holds when each file is empty.
			"empty": func(ts *testscript.TestScript, neg bool, args []string) {
				for _, name := range args {
					if (ts.ReadFile(name) == "") == neg {
						ts.Fatalf("%s: %q", name, ts.ReadFile(name))
					}
				}
			},
			// nothing-in DIR holds when a directory has no entries.
			"nothing-in": func(ts *testscript.TestScript, _ bool, args []string) {
				entries, err := os.ReadDir(ts.MkAbs(args[0]))
				ts.Check(err)
				if len(entries) > 0 {
					ts.Fatalf("%s holds %s", args[0], entries[0].Name())
				}
			},
		},
	})
}

func appendTo(ts *testscript.TestScript, name, text string) {
	f, err := os.OpenFile(ts.MkAbs(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	ts.Check(err)
	_, err = io.WriteString(f, text)
	ts.Check(err)
	ts.Check(f.Close())
}

// answer runs the program in process.
func answer(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), args, strings.NewReader(""), &out, &errs, system())
	return out.String(), errs.String(), status
}
