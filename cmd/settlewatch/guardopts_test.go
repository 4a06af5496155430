package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// write makes a file with its directories.
func write(t *testing.T, content string, elements ...string) string {
	t.Helper()
	file := filepath.Join(elements...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func symlink(t *testing.T, target string, elements ...string) string {
	t.Helper()
	file := filepath.Join(elements...)
	if err := os.Symlink(target, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// An agent writes in the trace root: a policy file there would be its own to
// choose, whichever way its path leads through it (guard contract, section 2).
func TestAPolicyFileMustNotLieWhereAgentsWrite(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege there")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, outside := filepath.Join(dir, ".trace"), filepath.Join(dir, "etc")
	inside := write(t, "{}", root, "guard", "policy.json")
	good := write(t, "{}", outside, "policy.json")
	beside := write(t, "{}", dir, ".trace-policy", "policy.json")
	for _, c := range []struct {
		name, file string
		refused    bool
	}{
		{"outside", good, false},
		{"a directory of a like name", beside, false},
		{"inside", inside, true},
		{"inside, by a way round", outside + "/../.trace/guard/policy.json", true},
		{"a link outside to a file inside", symlink(t, inside, outside, "in.json"), true},
		{"a link inside to a file outside", symlink(t, good, root, "out.json"), true},
		{"a directory link inside", symlink(t, outside, root, "etc") + "/policy.json", true},
		{"a link over a link inside", symlink(t, filepath.Join(root, "out.json"), outside, "two.json"), true},
		{"a relative link", symlink(t, "../.trace/guard/policy.json", outside, "relative.json"), true},
		{"a link outside to a file outside", symlink(t, "policy.json", outside, "fine.json"), false},
		{"a root that is a link itself", symlink(t, root, dir, "other-name") + "/guard/policy.json", true},
	} {
		o := guardOptions{config: path(c.file)}
		p, err := o.readPolicy(root, nil)
		if refused := err != nil; refused != c.refused {
			t.Errorf("%s: %v", c.name, err)
		} else if e := errcode.Of(err); refused && (e.Code != errcode.Policy || !strings.Contains(e.Message, "it lies in the trace root")) {
			t.Errorf("%s: %v", c.name, err)
		} else if !refused && p.policy.Hash() != guard.DefaultPolicy().Hash() {
			t.Errorf("%s: another policy was read", c.name)
		}
		o.inRoot = true
		if _, err := o.readPolicy(root, nil); err != nil {
			t.Errorf("%s, with --guard-config-in-root: %v", c.name, err)
		}
	}
}

func TestALoopOfLinksIsAnErrorAndNotTheEnd(t *testing.T) {
	dir := t.TempDir()
	a := symlink(t, "b", dir, "a")
	symlink(t, "a", dir, "b")
	o := guardOptions{config: path(a)}
	if _, err := o.readPolicy(dir, nil); err == nil {
		t.Error("it was read")
	}
	if !leadsThrough(a, filepath.Join(dir)) {
		t.Error("it leads through the directory it lies in")
	}
}

func TestThePolicyIsTheNamedOneElseTheLogsElseTheDefaults(t *testing.T) {
	dir := t.TempDir()
	named := write(t, `{"reviewAbove": "2"}`, dir, "named.json")
	logged := &decision.Policy{Path: write(t, `{"reviewAbove": "3"}`, dir, "logged.json")}
	for _, c := range []struct {
		name       string
		config     path
		logged     *decision.Policy
		above, has string
	}{
		{"named", path(named), logged, "2", named},
		{"the log's", "", logged, "3", logged.Path},
		{"none was ever named", "", &decision.Policy{}, "1", ""},
		{"nothing at all", "", nil, "1", ""},
	} {
		o := guardOptions{config: c.config}
		p, err := o.readPolicy(filepath.Join(dir, "root"), c.logged)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if above := strings.TrimRight(strings.TrimRight(p.policy.ReviewAbove, "0"), "."); above != c.above || p.path != c.has {
			t.Errorf("%s: %s from %q", c.name, p.policy.ReviewAbove, p.path)
		}
	}
	o := guardOptions{}
	_, err := o.readPolicy(dir, &decision.Policy{Path: filepath.Join(dir, "moved.json")})
	if e := errcode.Of(err); err == nil || e.Code != errcode.Policy || !strings.Contains(e.Message, "moved.json\", which the log names,: no such file") {
		t.Errorf("%v", err)
	}
}

func TestFaultsOfAPolicyAreOneError(t *testing.T) {
	dir := t.TempDir()
	o := guardOptions{config: path(write(t, `{"reviewAbove": 1, "bogus": 2}`, dir, "p.json"))}
	_, err := o.readPolicy(filepath.Join(dir, "root"), nil)
	e := errcode.Of(err)
	if err == nil || e.Code != errcode.Policy || strings.Contains(e.Message, "\n") || !strings.Contains(e.Message, "$.reviewAbove: ") || !strings.Contains(e.Message, "; $.bogus: ") {
		t.Errorf("%v", err)
	}
}

func TestAnotherPolicyThanTheLogsIsToldOf(t *testing.T) {
	p := &policyFile{policy: guard.DefaultPolicy(), path: "/etc/p.json"}
	for _, c := range []struct {
		name   string
		logged *decision.Policy
		want   string
	}{
		{"no line", nil, ""},
		{"the same", &decision.Policy{Hash: p.policy.Hash()}, ""},
		{"another", &decision.Policy{Hash: strings.Repeat("ab", 32)}, `note: the policy is "/etc/p.json" with hash ` + p.policy.Hash()[:12] +
			", but the log was last written under hash abababababab: the server may still judge by another one\n"},
	} {
		var errs strings.Builder
		a := app{stderr: &errs}
		a.otherPolicy(p, c.logged)
		if errs.String() != c.want {
			t.Errorf("%s: %q", c.name, errs.String())
		}
	}
}
