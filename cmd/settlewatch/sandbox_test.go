package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// attempt is what a restricted process was told to try, and what it found.
type attempt struct {
	Root  string   // the trace root it serves
	From  string   // what to make the root of once the server waits for it; "" when it is there
	Dial  string   // where to connect to
	Stray string   // a file that is none of the server's
	Temp  string   // its directory for temporary files
	Flags []string // of serve
	Move  string   // a file to move aside between two checks
	Trust string   // a file of certificate authorities
	Ask   string   // a tool to call at the end

	Said   string            // on stderr
	Failed map[string]string // what was tried: why it failed, "" when it did not
	Before []string          // decisions of checks before the files were restricted
	After  []string          // and after
	Answer string            // of the tool
}

// attempts runs a server in this process, as a host starts one, and then tries in the
// same process what a server that was taken over would try. It is a program of its own
// in the test binary: what a process gives up it never gets back.
func attempts() {
	var try attempt
	if err := json.NewDecoder(os.Stdin).Decode(&try); err != nil {
		panic(err)
	}
	if err := os.Setenv("TMPDIR", try.Temp); err != nil {
		panic(err)
	}
	if try.Trust != "" {
		if err := os.Setenv("SSL_CERT_FILE", try.Trust); err != nil {
			panic(err)
		}
	}
	env := system()
	env.sandbox = processSandbox()
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	said := &transcript{changed: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- run(context.Background(), append([]string{"serve", "--dir", try.Root}, try.Flags...), in, out, said, env)
		out.Close()
	}()
	lines := bufio.NewScanner(answers)
	lines.Buffer(nil, 1<<20)
	check := func() string {
		fmt.Fprintln(requests, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"check_before_pay","arguments":{"counterparty":"0x1111111111111111111111111111111111111111","amount":"0.01"}}}`)
		if !lines.Scan() {
			return "no answer"
		}
		var got struct {
			Result struct {
				StructuredContent struct {
					Decision string
					Reasons  []struct{ Rule string }
				}
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil || got.Result.StructuredContent.Decision == "" {
			return lines.Text()
		}
		return got.Result.StructuredContent.Decision + " " + got.Result.StructuredContent.Reasons[0].Rule
	}
	if try.From != "" {
		said.wait("files are not restricted yet")
		try.Before = append(try.Before, check())
		if err := os.CopyFS(try.Root, os.DirFS(try.From)); err != nil {
			panic(err)
		}
		try.Before = append(try.Before, check())
	}
	said.wait("run files are read-only to the process", "run files stay writable", "not restricted\"")
	try.After = append(try.After, check())
	if try.Move != "" {
		if err := os.Rename(try.Move, try.Move+".aside"); err != nil {
			panic(err)
		}
	}
	try.After = append(try.After, check())
	try.Failed = tryAll(&try)
	if try.Ask != "" {
		fmt.Fprintf(requests, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":{}}}`+"\n", try.Ask)
		if lines.Scan() {
			try.Answer = lines.Text()
		}
	}
	requests.Close()
	if status := <-ended; status != 0 {
		panic(fmt.Sprint("exit status ", status))
	}
	try.Said = said.text()
	if err := json.NewEncoder(os.Stdout).Encode(try); err != nil {
		panic(err)
	}
}

// transcript is what was said, for one who waits for a word.
type transcript struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
	return t.b.Write(p)
}

func (t *transcript) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// wait waits for one of some words; whoever started the process has the patience.
func (t *transcript) wait(words ...string) {
	for {
		for _, word := range words {
			if strings.Contains(t.text(), word) {
				return
			}
		}
		<-t.changed
	}
}

func tryAll(try *attempt) map[string]string {
	failed := map[string]string{}
	note := func(what string, err error) {
		failed[what] = ""
		if err != nil {
			failed[what] = err.Error()
		}
	}
	open := func(what, path string, flag int) {
		f, err := os.OpenFile(path, flag, 0o600)
		if err == nil {
			err = f.Close()
		}
		note(what, err)
	}
	runs, _ := filepath.Glob(filepath.Join(try.Root, "events", "*.ndjson"))
	open("append to a run", runs[0], os.O_APPEND|os.O_WRONLY)
	open("make a run", filepath.Join(try.Root, "events", "made.ndjson"), os.O_CREATE|os.O_WRONLY)
	open("read a run", runs[0], os.O_RDONLY)
	open("make a template", filepath.Join(try.Root, "templates.yaml"), os.O_CREATE|os.O_WRONLY)
	note("rename a run", os.Rename(runs[0], runs[0]+".moved"))
	note("cut a run", os.Truncate(runs[0], 0))
	note("remove a run", os.Remove(runs[0]))
	open("read a stray file", try.Stray, os.O_RDONLY)
	open("write a stray file", try.Stray, os.O_WRONLY)
	open("write a temporary file", filepath.Join(os.TempDir(), "temporary"), os.O_CREATE|os.O_WRONLY)
	c, err := new(net.Dialer).DialContext(context.Background(), "tcp", try.Dial)
	if err == nil {
		_ = c.Close()
	}
	note("connect", err)
	note("start a program", exec.CommandContext(context.Background(), "/bin/true").Run())
	return failed
}

// attempted lets a process try, and gives what it found.
func attempted(t *testing.T, try attempt) attempt {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	try.Dial, try.Stray = l.Addr().String(), filepath.Join(t.TempDir(), "stray")
	if err := os.WriteFile(try.Stray, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if try.Temp == "" {
		try.Temp = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "settlewatch-attempts")
	c.Stdin = strings.NewReader(mustJSON(try))
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var found attempt
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	t.Log(found.Said)
	return found
}

// want holds an attempt to what a process must not and may still do. Where the kernel
// cannot take something the process has said so.
func (a attempt) want(t *testing.T, forbidden, allowed []string) {
	t.Helper()
	if strings.Contains(a.Said, "the process is not restricted") {
		t.Logf("this kernel restricts nothing, which the process has said")
		forbidden = nil
	} else if !strings.Contains(a.Said, "gave_up=") {
		t.Errorf("it is not said what was given up:\n%s", a.Said)
	}
	for _, what := range forbidden {
		if why := a.Failed[what]; why == "" && (what != "connect" || strings.Contains(a.Said, "TCP connections")) {
			t.Errorf("it can %s", what)
		} else if why != "" && !strings.Contains(why, "permission denied") {
			t.Errorf("%s fails for another reason: %s", what, why)
		}
	}
	for _, what := range allowed {
		if why, tried := a.Failed[what]; !tried || why != "" {
			t.Errorf("%s: tried %v, %s", what, tried, why)
		}
	}
	for _, decision := range a.After {
		if decision != "allow history" {
			t.Errorf("a check is answered with %s", decision)
		}
	}
	if strings.Contains(a.Said, "level=WARN") || strings.Contains(a.Said, "level=ERROR") {
		t.Errorf("something went wrong:\n%s", a.Said)
	}
}

var (
	outsideRuns  = []string{"append to a run", "make a run", "rename a run", "cut a run", "remove a run", "make a template"}
	outsideWorld = []string{"connect", "start a program"}
)

func TestARestrictedServerAnswersAndCanDoNothingElse(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	a := attempted(t, attempt{Root: root})
	a.want(t, append(outsideRuns, append(outsideWorld, "write a stray file", "read a stray file")...), []string{"read a run", "write a temporary file"})
	log, err := os.ReadFile(filepath.Join(root, "guard", "decisions.ndjson"))
	if n := bytes.Count(log, []byte(`"type":"`)); err != nil || n == 0 {
		t.Errorf("the log has %d lines, %v:\n%s", n, err, log)
	}
}

// Who an instance is can be told after the files are closed too, wherever the
// authorities are named.
func TestARestrictedServerStillReachesItsMarket(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	body, err := os.ReadFile(filepath.Join("..", "..", "testdata", "market", "orderbook-page-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	defer s.Close()
	trust := filepath.Join(t.TempDir(), "authorities.pem")
	if err := os.WriteFile(trust, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	a := attempted(t, attempt{Root: root, Trust: trust, Ask: "morphit_search_orders",
		Flags: []string{"--toolset", "trace,guard,market", "--market-instance", s.URL, "--market-allow-private"}})
	a.want(t, append(outsideRuns, "start a program", "write a stray file", "read a stray file"), []string{"read a run", "connect"})
	if !strings.Contains(a.Answer, "orchard.lane") {
		t.Errorf("the market answers %s", a.Answer)
	}
}

func TestARootAmongTemporaryFilesIsReadOnlyAsWell(t *testing.T) {
	temp := t.TempDir()
	root := filepath.Join(temp, "agent", ".trace")
	if err := os.CopyFS(root, os.DirFS(recorded(t, "02-settle-timeout"))); err != nil {
		t.Fatal(err)
	}
	a := attempted(t, attempt{Root: root, Temp: temp})
	a.want(t, append(outsideRuns, outsideWorld...), []string{"read a run", "write a temporary file"})
	if left, _ := filepath.Glob(filepath.Join(temp, "settlewatch-*")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

func TestARootThatComesAfterTheServerIsReadOnlyOnceItIsThere(t *testing.T) {
	root := filepath.Join(t.TempDir(), "not", "yet", ".trace")
	a := attempted(t, attempt{Root: root, From: recorded(t, "02-settle-timeout")})
	a.want(t, append(outsideRuns, outsideWorld...), []string{"read a run"})
	if len(a.Before) != 2 || a.Before[0] != "review not_ready" || a.Before[1] != "allow history" {
		t.Errorf("before that, checks were answered with %q", a.Before)
	}
}

func TestWhatLiesElsewhereIsStillWritten(t *testing.T) {
	root, elsewhere := recorded(t, "02-settle-timeout"), t.TempDir()
	index := filepath.Join(elsewhere, "index", "mine.db")
	for _, dir := range []string{"index", "pins"} {
		if err := os.Mkdir(filepath.Join(elsewhere, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	guardDir, pin := filepath.Join(elsewhere, "guard"), filepath.Join(elsewhere, "pins", "checkpoint")
	a := attempted(t, attempt{Root: root, Move: index, Flags: []string{"--index", index, "--guard-dir", guardDir, "--checkpoint", pin, "--templates-dir", filepath.Join(elsewhere, "templates")}})
	a.want(t, append(outsideRuns, outsideWorld...), []string{"read a run"})
	for _, file := range []string{index, index + ".aside", pin, filepath.Join(guardDir, "decisions.ndjson")} {
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "guard")); err == nil {
		t.Error("something was written in the root")
	}
}

func TestAnIndexAroundTheRunFilesKeepsThemWritableAndThatIsSaid(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	a := attempted(t, attempt{Root: root, Flags: []string{"--index", filepath.Join(root, "index.db")}})
	a.want(t, outsideWorld, append(outsideRuns[:0:0], "read a run", "append to a run"))
	if !strings.Contains(a.Said, "the process is not restricted") && !strings.Contains(a.Said, "run files stay writable to the process") {
		t.Errorf("it is not said:\n%s", a.Said)
	}
}

func TestAServerThatCannotBeRestrictedSaysSoAndServes(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	t.Setenv("TMPDIR", t.TempDir()) // elsewhere, so that the process is given none of its own
	env := system()
	env.sandbox = &sandbox{outside: func(bool) ([]string, string, error) { return nil, "", errors.New("this kernel is too old") }}
	var out, errs bytes.Buffer
	status := run(t.Context(), []string{"serve", "--dir", root},
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_operations","arguments":{}}}`+"\n"), &out, &errs, env)
	if status != 0 || !strings.Contains(out.String(), `"runs_scanned":`) {
		t.Errorf("exit status %d: %s", status, out.String())
	}
	if !strings.Contains(errs.String(), `msg="the process is not restricted" reason="this kernel is too old"`) {
		t.Errorf("it said:\n%s", errs.String())
	}
}

func TestOnlyAServerThatDialsKeepsItsConnections(t *testing.T) {
	for _, c := range []struct {
		toolsets []string
		want     bool
	}{{[]string{"trace", "guard"}, false}, {[]string{"market"}, true}, {[]string{"trace", "market"}, true}} {
		var dial *bool
		a := &app{stderr: io.Discard, env: environment{sandbox: &sandbox{outside: func(d bool) ([]string, string, error) {
			dial = &d
			return nil, "", errors.New("no more than asked")
		}}}}
		a.confine(t.Context(), &serving{options: &serveOptions{toolsets: c.toolsets}})
		if dial == nil || *dial != c.want {
			t.Errorf("%q: asked %v", c.toolsets, dial)
		}
	}
}
