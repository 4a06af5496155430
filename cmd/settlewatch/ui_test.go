package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/ui"
)

func TestThePagesAreForThisMachineOnly(t *testing.T) {
	root := agentRoot(t)
	traceOf(t, root, map[string][]bought{"1": nil})
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", "192.168.1.2:0", "10.0.0.1:8737", "example.com:80", "127.0.0.1", ":8737", "", "localhost.example:80", "[::ffff:8.8.8.8]:0", "127.0.0.1:99999"} {
		var errs bytes.Buffer
		exit := run(t.Context(), []string{"ui", "--dir", root, "--no-open", "--addr", addr}, strings.NewReader(""), io.Discard, &errs, system())
		if exit != 2 || !strings.Contains(errs.String(), "--addr") {
			t.Errorf("%q: status %d, %s", addr, exit, errs.String())
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:0", "[::1]:0", "127.9.9.9:80"} {
		if _, err := loopback(addr); err != nil {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestThePagesNeedAKeyThatOperatorsHave(t *testing.T) {
	root, home := agentRoot(t), t.TempDir()
	traceOf(t, root, map[string][]bought{"1": nil})
	config := filepath.Join(home, "policy.json")
	if err := os.WriteFile(config, []byte(`{"operators": [{"name": "ana", "publicKey": "`+strings.Repeat("A", 43)+`="}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	env := system()
	env.home = func() (string, error) { return home, nil }
	env.getenv = func(string) string { return "" }
	if exit := run(t.Context(), []string{"ui", "--dir", root, "--no-open", "--guard-config", config}, strings.NewReader(""), io.Discard, &errs, env); exit != 1 || !strings.Contains(errs.String(), "E_OPERATOR_KEY") {
		t.Errorf("status %d, %s", exit, errs.String())
	}
}

// What a browser is started with tells nothing: it is the name of a file, which only
// its user can read, and which is gone at the end.
func TestTheLinkIsInAFileOfThePersonAlone(t *testing.T) {
	root, bin, temp := agentRoot(t), t.TempDir(), t.TempDir()
	traceOf(t, root, map[string][]bought{"1": nil})
	seen := filepath.Join(bin, "seen")
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte("#!/bin/sh\necho \"$@\" >"+seen+".new && mv "+seen+".new "+seen+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("TMPDIR", temp)
	var errs lockedBuffer
	env := system()
	env.goos = "linux"
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, env: env}
	o := &uiOptions{addr: "127.0.0.1:0"}
	o.dir = path(root)
	links := make(chan string, 1)
	o.opened = func(link string) { links <- link }
	served := make(chan string, 1)
	o.made = func(_ *ui.UI, at string) { served <- at }
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.runUI(ctx, o) }()
	var link string
	select {
	case link = <-links:
	case err := <-done:
		t.Fatal(err)
	}
	addr := <-served
	var file string
	for file == "" {
		if text, err := os.ReadFile(seen); err == nil {
			file = strings.TrimSpace(string(text))
		}
		time.Sleep(5 * time.Millisecond)
	}
	if filepath.Dir(filepath.Dir(file)) != temp || strings.ContainsAny(file, "?=") {
		t.Errorf("the browser was started with %q", file)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), link) {
		t.Errorf("%s, %v", text, err)
	}
	for at, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700 | os.ModeDir} {
		if info, err := os.Stat(at); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", at, info.Mode(), err)
		}
	}
	secret := link[strings.Index(link, "link=")+5:]
	if said := errs.String(); strings.Contains(said, secret) || !strings.Contains(said, "for this machine only") {
		t.Errorf("it says %s", said)
	}
	// Nothing that agents are served by answers there.
	res, err := http.Post("http://"+addr+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("status %d", res.StatusCode)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(file)); !os.IsNotExist(err) {
		t.Errorf("it left %s", filepath.Dir(file))
	}
}

func TestHostNamesAreNotGuessed(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		label := hostLabel()
		if len(label) != 33 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz234567") != "" || seen[label] {
			t.Fatalf("%q", label)
		}
		seen[label] = true
	}
}

// An approval of a tool call lets run what its page shows, so the page shows all of it.
func TestACallOnThePagesIsShownWithAllThatWillRun(t *testing.T) {
	long := strings.Repeat("0123456789", 1000)
	v := callReview(`{"end":"the last of it","hidden":"\u202e","long":"` + long + `"}`)
	c := uiCard(&v)
	if c.Call == nil || c.Amount != "one call of ledger.post" || c.To != "tenant:north" {
		t.Fatalf("%+v", c)
	}
	contains(t, "card", squeezed(strings.Join(c.Call.Arguments, "")), long, `"thelastofit"`, `\u202e`)
	rows := ""
	for _, r := range c.Rows {
		rows += r.Label + " " + r.Value + "\n"
	}
	contains(t, "card", rows, "call ledger.post", "for tenant:north", "risk critical")
}
