package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// printUnit is what systemd-unit prints for the binary at program.
func printUnit(t *testing.T, program string, args ...string) (unit, errs string, status int) {
	t.Helper()
	env := system()
	env.executable = func() (string, error) { return program, nil }
	var out, diag bytes.Buffer
	status = run(t.Context(), append([]string{"systemd-unit"}, args...), strings.NewReader(""), &out, &diag, env)
	return out.String(), diag.String(), status
}

var unitCases = []struct {
	name string
	args []string
	want []string // lines
}{
	{"as it is", nil, []string{
		"ExecStart={{program}} serve --http 127.0.0.1:8124 --dir /srv/agent/.trace --guard-dir /var/lib/settlewatch",
		"ProtectHome=yes",
	}},
	{"a root in a home that is not shown otherwise", []string{"--dir", "/home/agent/.trace"}, []string{
		"ExecStart={{program}} serve --http 127.0.0.1:8124 --dir /home/agent/.trace --guard-dir /var/lib/settlewatch",
		"ProtectHome=tmpfs",
		"BindReadOnlyPaths=/home/agent/.trace",
	}},
	{"a root whose name systemd would read something into", []string{"--dir", `/home/a b/50%:$HOME"\/.trace`}, []string{
		`ExecStart={{program}} serve --http 127.0.0.1:8124 --dir "/home/a b/50%%:$$HOME\"\\/.trace" --guard-dir /var/lib/settlewatch`,
		`BindReadOnlyPaths="/home/a b/50%%\:$HOME\"\\/.trace"`,
	}},
	{"a market", []string{"--", "--toolset", "trace,guard,market", "--market-instance", "https://market.example"}, []string{
		"ExecStart={{program}} serve --http 127.0.0.1:8124 --dir /srv/agent/.trace --guard-dir /var/lib/settlewatch --toolset trace,guard,market --market-instance https://market.example",
		"# Network: the market toolset dials, so no address is closed here. The server itself",
	}},
	{"a market behind a proxy", []string{"--", "--toolset", "market", "--market-instance", "https://market.example", "--market-proxy", "socks5h://127.0.0.1:9050"}, []string{
		"IPAddressDeny=any", "IPAddressAllow=localhost",
	}},
	{"public offers for everybody", []string{"--", "--toolset", "market", "--market-instance", "https://market.example", "--http", "0.0.0.0:8124", "--http-allow-remote", "--http-allow-public"}, []string{
		"# Network: the market toolset dials, so no address is closed here. The server itself",
	}},
	{"more flags for the server", []string{"--", "--guard-config", "/etc/settlewatch/the policy.json", "--toolset=guard"}, []string{
		`ExecStart={{program}} serve --http 127.0.0.1:8124 --dir /srv/agent/.trace --guard-dir /var/lib/settlewatch --guard-config "/etc/settlewatch/the policy.json" --toolset=guard`,
	}},
}

func TestTheUnitSaysWhatWasAsked(t *testing.T) {
	for _, c := range unitCases {
		t.Run(c.name, func(t *testing.T) {
			unit, errs, status := printUnit(t, "/usr/local/bin/settlewatch", c.args...)
			if status != 0 || errs != "" {
				t.Fatalf("exit status %d, %s", status, errs)
			}
			lines := strings.Split(unit, "\n")
			for _, want := range c.want {
				if want = strings.ReplaceAll(want, "{{program}}", "/usr/local/bin/settlewatch"); !slices.Contains(lines, want) {
					t.Errorf("the unit has no line\n%s\n%s", want, unit)
				}
			}
			if strings.Contains(unit, "{{") {
				t.Errorf("something was not filled in:\n%s", unit)
			}
		})
	}
}

func TestAUnitStaysOnLoopbackUnlessItIsToDial(t *testing.T) {
	market := []string{"--", "--toolset", "market", "--market-instance", "https://market.example"}
	for name, c := range map[string]struct {
		args   []string
		closed bool
	}{
		"no market":           {nil, true},
		"a market":            {market, false},
		"a proxy on loopback": {append(slices.Clip(market), "--market-proxy", "socks5h://[::1]:9050"), true},
		"a proxy by name":     {append(slices.Clip(market), "--market-proxy", "socks5h://localhost:9050"), true},
		"a proxy elsewhere":   {append(slices.Clip(market), "--market-proxy", "socks5h://10.0.0.7:9050"), false},
	} {
		unit, errs, status := printUnit(t, "/usr/local/bin/settlewatch", c.args...)
		if closed := strings.Contains(unit, "\nIPAddressDeny=any\nIPAddressAllow=localhost\n"); status != 0 || closed != c.closed {
			t.Errorf("%s: closed %v, status %d %s", name, closed, status, errs)
		}
	}
}

func TestAUnitIsNotPrintedForWhatItCannotServe(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--dir", ".trace"}, "--dir takes an absolute path here"},
		{[]string{"--dir", "/srv/a\nExecStartPre=/bin/true"}, "a unit cannot hold"},
		{[]string{"--", "--no-such-flag"}, "unknown flag: --no-such-flag"},
		{[]string{"--", "stray"}, "only flags of serve stand behind --"},
		{[]string{"--", "--dir", "/elsewhere"}, "--dir stands before --"},
		{[]string{"--", "--guard-dir", "/elsewhere"}, "--dir stands before --"},
		{[]string{"--", "--dir", ".trace"}, "--dir stands before --"},
		{[]string{"--", "--help"}, "help is no server"},
		{[]string{"--", "--guard-config", "policy.json"}, "--guard-config takes an absolute path here"},
		{[]string{"--", "--auth-jwks", "jwks.json"}, "--auth-jwks takes an absolute path here"},
	} {
		if unit, errs, status := printUnit(t, "/usr/local/bin/settlewatch", c.args...); status != 2 || unit != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit status %d, printed %q, said %s", c.args, status, unit, errs)
		}
	}
}

// What serve refuses for its flags alone, the unit's command would be refused for at
// every start. Both say the same.
func TestAUnitIsNotPrintedForWhatServeRefuses(t *testing.T) {
	market := []string{"--toolset", "market", "--market-instance", "https://market.example"}
	for _, c := range []struct {
		name  string
		flags []string
	}{
		{"an unknown flag", []string{"--no-such-flag"}},
		{"a value of another kind", []string{"--http-rate", "many"}},
		{"a flag without its value", []string{"--guard-config"}},
		{"a blank value", []string{"--guard-config", " "}},
		{"a blank address", []string{"--http", ""}},
		{"tokens and no tokens", []string{"--http-insecure-no-auth", "--auth-issuer", "https://issuer.example"}},
		{"two verifiers", []string{"--auth-issuer", "https://issuer.example", "--auth-jwks", "/k", "--auth-hmac-secret", "/s"}},
		{"an issuer that is no URL", []string{"--auth-issuer", "issuer"}},
		{"an address that may not be bound", []string{"--http", "10.0.0.7:8124"}},
		{"no address", []string{"--http", "elsewhere:8124"}},
		{"every host", []string{"--http-allowed-host", "*"}},
		{"every origin", []string{"--http-allowed-origin", "*"}},
		{"every proxy", []string{"--http-trusted-proxy", "0.0.0.0/0"}},
		{"no request at all", []string{"--http-rate", "0"}},
		{"a deadline that is none", []string{"--http-timeout", "idle=0s"}},
		{"no time for a check", []string{"--sync-timeout", "0s"}},
		{"an unknown toolset", []string{"--toolset", "bogus"}},
		{"a toolset for a terminal", []string{"--toolset", "operator"}},
		{"a market without an instance", []string{"--toolset", "market"}},
		{"an instance without the market", market[2:]},
		{"an answer of any size", append(slices.Clip(market), "--market-max-body", "-1")},
		{"a proxy that is no URL", append(slices.Clip(market), "--market-proxy", "127.0.0.1:9050")},
		{"metrics for everybody", []string{"--metrics", "0.0.0.0:9464"}},
		{"an argument of the host that is none", []string{"--host-bound", "name"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			verifier := []string{"--auth-issuer", "https://issuer.example", "--auth-jwks", "/etc/settlewatch/jwks.json"}
			if slices.ContainsFunc(c.flags, func(flag string) bool { return strings.HasPrefix(flag, "--auth-") }) {
				verifier = nil
			}
			serve := slices.Concat([]string{"serve", "--dir", t.TempDir(), "--http", unitHTTP}, verifier, c.flags)
			if c.name == "an issuer that is no URL" {
				serve = append(serve, "--auth-jwks", "/etc/settlewatch/jwks.json")
			}
			_, want, status := answer(t, serve...)
			if status != 2 {
				t.Fatalf("serve ends with %d: %s", status, want)
			}
			// A hint names the command that was called; the rest is the same.
			said := func(text string) string {
				text = text[strings.Index(text, "error: "):]
				before, hint, _ := strings.Cut(text, ". try: settlewatch ")
				if hint != "" {
					return before
				}
				return text
			}
			unit, errs, status := printUnit(t, "/usr/local/bin/settlewatch", append([]string{"--"}, c.flags...)...)
			if status != 2 || unit != "" || said(errs) != said(want) {
				t.Errorf("exit status %d, printed %q, said\n%swant\n%s", status, unit, errs, want)
			}
		})
	}
}

// The environment of whoever prints a unit is not the unit's.
func TestAUnitOwesNothingToTheShellItIsPrintedIn(t *testing.T) {
	t.Setenv("SETTLEWATCH_HTTP_RATE", "nonsense")
	t.Setenv("SETTLEWATCH_HTTP_INSECURE_NO_AUTH", "true")
	t.Setenv("MORPHIT_MCP_INSTANCE_URL", "https://market.example")
	if _, errs, status := printUnit(t, "/usr/local/bin/settlewatch", "--", "--auth-issuer", "https://issuer.example"); status != 0 {
		t.Errorf("exit status %d: %s", status, errs)
	}
	if _, errs, status := printUnit(t, "/usr/local/bin/settlewatch", "--", "--toolset", "market"); status != 2 || !strings.Contains(errs, "no instance is named") {
		t.Errorf("exit status %d: %s", status, errs)
	}
}

// The peer's unit has two defects that systemd only warns of (transport contract,
// section 1). systemd-analyze is part of systemd, which a developer's machine need not
// have; the script of the CI installs it, so that there it is always asked. The two
// defects themselves show in the text, and are looked for wherever this runs.
func TestMarketContract69SystemdFindsNothingToSayOfTheUnit(t *testing.T) {
	analyze, missing := exec.LookPath("systemd-analyze")
	program := filepath.Join(t.TempDir(), "settlewatch")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range unitCases {
		t.Run(c.name, func(t *testing.T) {
			unit, _, status := printUnit(t, program, c.args...)
			if status != 0 {
				t.Fatalf("exit status %d", status)
			}
			checkUnitText(t, unit)
			if missing != nil {
				t.Logf("asked nobody but the text: %v", missing)
				return
			}
			file := filepath.Join(t.TempDir(), "settlewatch.service")
			if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
				t.Fatal(err)
			}
			if said, err := exec.CommandContext(t.Context(), analyze, "verify", file).CombinedOutput(); err != nil || len(said) > 0 {
				t.Errorf("systemd-analyze verify: %v\n%s", err, said)
			}
			said, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager", file).CombinedOutput()
			if err != nil {
				t.Fatalf("systemd-analyze security: %v\n%s", err, said)
			}
			level := regexp.MustCompile(`Overall exposure level for settlewatch.service: ([0-9.]+) `).FindSubmatch(said)
			if level == nil {
				t.Fatalf("systemd-analyze security gave no level:\n%s", said)
			}
			if exposure, err := strconv.ParseFloat(string(level[1]), 64); err != nil || exposure > 1.2 {
				t.Errorf("the exposure level is %s", level[1])
			}
		})
	}
}

func checkUnitText(t *testing.T, unit string) {
	t.Helper()
	section, limits := "", 0
	for line := range strings.Lines(unit) {
		line = strings.TrimSpace(line)
		key, value, isSetting := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = line
		case !isSetting:
			t.Errorf("%q is no setting", line)
		case strings.HasPrefix(key, "StartLimit"):
			if limits++; section != "[Unit]" || value == "0" {
				t.Errorf("%q in %s limits nothing", line, section)
			}
		case key == "SystemCallFilter" && strings.Contains(value[1:], "~"):
			t.Errorf("%q: a tilde counts only in front of the whole list", line)
		}
	}
	if limits != 2 {
		t.Errorf("%d settings limit how often the service starts, not an interval and a burst", limits)
	}
}
