package assemble

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

const good = "template: probe\nversion: 1\nstages:\n  - id: seen\n    required: true\n    match:\n      - event: probe.seen\n"

// The checks of the trace contract, section 4, in their order: each document
// fails the named one and may fail later ones too.
func TestTemplateChecks(t *testing.T) {
	stages := func(s string) string { return "template: t\nversion: 1\nstages: " + s + "\n" }
	for _, c := range []struct {
		name, src string
		line      int    // 0: the document is sound
		says      string // part of the message
	}{
		{"an empty file", "", -1, "empty"},
		{"only a comment", "# nothing\n", -1, "empty"},
		{"null", "~\n", -1, "empty"},
		{"a list", "- template: t\n", 1, "a template is a mapping"},
		{"a text", "template\n", 1, "a template is a mapping"},
		{"no name", "version: x\n", 1, "template is missing"},
		{"an empty name", "template: ''\nversion: x\n", 1, "template must be non-empty text"},
		{"a number as name", "template: 7\nversion: x\n", 1, "template must be non-empty text"},
		{"null as name", "template:\nversion: x\n", 2, "template must be non-empty text"},
		{"a list as name", "template: [t]\nversion: x\n", 1, "template must be non-empty text"},
		{"a date by its tag as name", "template: !!timestamp 2026-01-01\nversion: 1\n", 1, "template must be non-empty text"},
		{"a blank as name", strings.Replace(good, "probe\n", "' '\n", 1), 0, ""},
		{"no version", "template: t\nstages: 0\n", 1, "version is missing"},
		{"text as version", "template: t\nversion: '1'\nstages: 0\n", 2, "version must be a finite number"},
		{"a boolean as version", "template: t\nversion: true\n", 2, "version must be a finite number"},
		{"null as version", "template: t\nversion:\nx: 1\n", 3, "version must be a finite number"},
		{"no number as version", "template: t\nversion: .nan\n", 2, "version must be a finite number"},
		{"infinity as version", "template: t\nversion: -.inf\n", 2, "version must be a finite number"},
		{"too great a version", "template: t\nversion: 1e400\n", 2, "version must be a finite number"},
		{"a negative fraction as version", strings.Replace(good, "1\n", "-0.5\n", 1), 0, ""},
		{"zero as version", strings.Replace(good, "1\n", "0\n", 1), 0, ""},
		{"no stages", "template: t\nversion: 1\nexceptions: 0\n", 1, "stages is missing"},
		{"stages that are a mapping", stages("{id: a}") + "exceptions: 0\n", 3, "stages must be a non-empty list"},
		{"no stage", stages("[]"), 3, "stages must be a non-empty list"},
		{"null as stages", stages("~"), 3, "stages must be a non-empty list"},
		{"a stage that is text", stages("[a]"), 3, "stage 1: a stage is a mapping"},
		{"a stage that is a list", stages("[[a]]"), 3, "stage 1: a stage is a mapping"},
		{"a stage without id", stages("[{required: x}]"), 3, "stage 1: id is missing"},
		{"a stage with an empty id", stages("[{id: '', required: x}]"), 3, "stage 1: id must be non-empty text"},
		{"a stage with a number as id", stages("[{id: 1, required: x}]"), 3, "stage 1: id must be non-empty text"},
		{"two stages of one id", stages("[{id: a, required: true, match: [{event: e}]}, {id: a, required: x}]"), 3, `stage "a": two stages share this id`},
		{"required missing", stages("[{id: a, match: 0}]"), 3, `stage "a": required is missing`},
		{"required that is text", stages("[{id: a, required: yes, match: 0}]"), 3, `stage "a": required must be true or false`},
		{"required that is null", stages("[{id: a, required: , match: 0}]"), 3, `stage "a": required must be true or false`},
		{"required that is a number", stages("[{id: a, required: 1, match: 0}]"), 3, `stage "a": required must be true or false`},
		{"no match", stages("[{id: a, required: true, missing_explanation: 1}]"), 3, `stage "a": match is missing`},
		{"an empty match", stages("[{id: a, required: true, match: [], missing_explanation: 1}]"), 3, `stage "a": match must be a non-empty list`},
		{"match that is a mapping", stages("[{id: a, required: true, match: {event: e}}]"), 3, `stage "a": match must be a non-empty list`},
		{"a witness that is text", stages("[{id: a, required: true, match: [e]}]"), 3, `stage "a": an entry of match is a mapping`},
		{"a witness without event", stages("[{id: a, required: true, match: [{role: 1}]}]"), 3, `stage "a": event is missing`},
		{"a witness with an empty event", stages("[{id: a, required: true, match: [{event: '', role: 1}]}]"), 3, `stage "a": event must be non-empty text`},
		{"an empty role", stages("[{id: a, required: true, match: [{event: e, role: ''}], missing_explanation: 1}]"), 3, `stage "a": role must be non-empty text`},
		{"null as role", stages("[{id: a, required: true, match: [{event: e, role: }]}]"), 3, `stage "a": role must be non-empty text`},
		{"a number as explanation", stages("[{id: a, required: true, match: [{event: e}], missing_explanation: 1}]") + "exceptions: 0\n", 3, `stage "a": missing_explanation must be text`},
		{"null as explanation", stages("[{id: a, required: true, match: [{event: e}], missing_explanation: }]"), 3, `stage "a": missing_explanation must be text`},
		{"an empty explanation", good + "    missing_explanation: ''\n", 0, ""},
		{"the second stage in the third line", "template: t\nversion: 1\nstages:\n- {id: a, required: true, match: [{event: e}]}\n- {id: b, required: 0, match: [{event: e}]}\n", 5, `stage "b": required`},
		{"a later stage before the exceptions", stages("[{id: a, required: true, match: [{event: e}]}, {id: b}]") + "exceptions: 0\n", 3, `stage "b": required is missing`},
		{"exceptions that are text", good + "exceptions: e\n", 8, "exceptions must be a list of non-empty text"},
		{"exceptions that are null", good + "exceptions:\n", 9, "exceptions must be a list of non-empty text"},
		{"an exception that is empty", good + "exceptions: [e, '']\n", 8, "exceptions must be a list of non-empty text"},
		{"an exception that is a number", good + "exceptions: [e, 1]\n", 8, "exceptions must be a list of non-empty text"},
		{"no exceptions at all", good, 0, ""},
		{"an empty list of exceptions", good + "exceptions: []\n", 0, ""},
		{"an exception twice", good + "exceptions: [e, e]\n", 0, ""},
		{"unknown members anywhere", good + "    note: 1\nowner: ~\nmeta: {1: one, ? [a] : b}\n", 0, ""},
		{"JSON", `{"template":"t","version":1,"stages":[{"id":"\ud83d\ude00","required":false,"match":[{"event":"a\/b"}]}]}`, 0, ""},
		{"two documents", good + "---\n", 8, "more than one document"},
		{"YAML that is broken", "template: t\nversion: [1\n", 3, "not closed"},
	} {
		got, _, err := ParseTemplate([]byte(c.src))
		if c.line == 0 {
			if err != nil || got == nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var e *TemplateError
		if got != nil || !errors.As(err, &e) || !strings.Contains(err.Error(), c.says) || e.Line != max(c.line, 0) {
			t.Errorf("%s: got %v; want line %d, %q", c.name, err, c.line, c.says)
		}
	}
}

func TestTheVersionIsTheNumberItSays(t *testing.T) {
	long := "1" + strings.Repeat("0", 850)
	for version, want := range map[string]float64{
		long + "e-845": 100000, "-" + long + "e-845": -100000, "+" + long + ".0e-845": 100000, long + "e-1170": 1e-320,
		"0x" + strings.Repeat("0", 850) + "fF": 255, "0o17": 15, "014": 14, ".5": .5, "5.": 5,
	} {
		got, _, err := ParseTemplate([]byte(strings.Replace(good, "version: 1\n", "version: "+version+"\n", 1)))
		if err != nil || got.Version != want {
			t.Errorf("version %.12s... is %+v (%v), want %v", version, got, err, want)
		}
	}
	if _, _, err := ParseTemplate([]byte(strings.Replace(good, "version: 1\n", "version: "+long+"e-500\n", 1))); err == nil {
		t.Error("a version too great for a double was read")
	}
}

func TestTemplateBytesThatAreNotUTF8BecomeReplacementCharacters(t *testing.T) {
	got, _, err := ParseTemplate([]byte(strings.Replace(good, "probe\n", "'a\xe2\x82b\xed\xa0\x80'\n", 1)))
	if err != nil || got.Name != "a\uFFFDb\uFFFD\uFFFD\uFFFD" {
		t.Errorf("got %q, %v", got.Name, err)
	}
}

// The facts of the shipped templates (trace contract, section 4).
func TestBuiltins(t *testing.T) {
	type facts struct {
		Version    float64
		Stages     []string
		Exceptions string
	}
	want := map[string]facts{
		"x402-buyer": {2, []string{
			"challenge true x402.payment.required@client x402.payment.creating@client",
			"payment true x402.payment.submitted@client x402.payment.requested@client",
			"settlement true x402.payment.responded@client",
		}, "x402.payment.creation_failed x402.payment.failed x402.verify.failed x402.settle.failed x402.payment.canceled"},
		"x402-seller": {2, []string{
			"request false x402.request.protected@server",
			"verification true x402.verify.ok@server",
			"settlement true x402.settle.ok@server",
		}, "x402.verify.failed x402.settle.failed x402.payment.canceled"},
		"x402-facilitator": {1, []string{
			"verification true x402.verify.ok@facilitator",
			"settlement true x402.settle.ok@facilitator",
		}, "x402.verify.failed x402.settle.failed"},
		"escrow-arc": {2, []string{
			"agreement true escrow.agreement.created@",
			"deposit true circle.contract.payment_created@",
			"delivery false escrow.work.delivered@",
			"criteria false escrow.criteria.evaluated@ escrow.criteria.assessed@",
			"review false escrow.review.approved@ escrow.review.rejected@",
			"disposition true circle.contract.withdrawal@ circle.contract.refund@ circle.transaction.inbound.complete@",
		}, "circle.transaction.outbound.failed circle.transaction.inbound.failed escrow.criteria.evaluation_failed"},
	}
	for _, name := range Builtins() {
		src := Builtin(name)
		given, err := os.ReadFile(filepath.Join(parityDir, "templates", name+".yaml"))
		if err != nil || !bytes.Equal(src, given) {
			t.Errorf("%s is not the template of the vectors: %v", name, err)
		}
		tp, warnings, err := ParseTemplate(src)
		if err != nil || len(warnings) > 0 || tp.Name != name {
			t.Fatalf("%s: %q, %v", name, warnings, err)
		}
		got := facts{Version: tp.Version, Exceptions: strings.Join(tp.Exceptions, " ")}
		for _, s := range tp.Stages {
			line := fmt.Sprint(s.ID, " ", s.Required)
			for _, w := range s.Match {
				line += " " + w.Event + "@" + w.Role
			}
			got.Stages = append(got.Stages, line)
			if (s.Explanation == "") != (s.ID == "request") {
				t.Errorf("%s: the explanation of %s is %q", name, s.ID, s.Explanation)
			}
		}
		if diff := cmp.Diff(want[name], got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		money, outcome := tp.Roles()
		ids := " "
		for _, s := range tp.Stages {
			ids += s.ID + " "
		}
		if !strings.Contains(ids, " "+money+" ") || !strings.Contains(ids, " "+outcome+" ") {
			t.Errorf("%s has no stages %q and %q", name, money, outcome)
		}
		if !tp.IsException(tp.Exceptions[0]) || tp.IsException("x402.payment.responded") {
			t.Errorf("%s confuses its exceptions", name)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not built in: %v", want)
	}
	if Builtin("../doc") != nil || Builtin("nothing") != nil {
		t.Error("a template that does not exist is built in")
	}
}

func TestResolve(t *testing.T) {
	local := map[string]string{
		"shop.yaml":       strings.Replace(good, "probe\n", "the-shop\n", 1),
		"x402-buyer.yaml": good,
		"broken.yaml":     "template: [",
		"escrow-arc.yaml": "stages: 1\n",
		"warns.yaml":      good + "x: !odd y\n",
		"yml.yml":         good,
	}
	lib := Library{Dir: "root/templates", Read: func(name string) ([]byte, error) {
		if name == "x402-seller.yaml" {
			return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
		}
		if s, ok := local[name]; ok {
			return []byte(s), nil
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}}
	files := func(path string) ([]byte, error) {
		switch path {
		case "./other.yaml", "x402-facilitator.yaml", "a b":
			return []byte(good), nil
		case "dir/":
			return nil, &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	}
	for _, c := range []struct {
		name, ref string
		want      *Resolved
		code      errcode.Code
		says      string
	}{
		{"a local name", "shop", &Resolved{Ref: "shop", Path: "root/templates/shop.yaml", Origin: OriginLocal}, "", ""},
		{"a local file before the built-in", "x402-buyer", &Resolved{Ref: "x402-buyer", Path: "root/templates/x402-buyer.yaml", Origin: OriginLocal}, "", ""},
		{"a built-in", "x402-facilitator", &Resolved{Ref: "x402-facilitator", Path: "builtin:x402-facilitator", Origin: OriginBuiltin}, "", ""},
		{"a broken local file never falls back", "escrow-arc", nil, errcode.TemplateInvalid, "template is missing"},
		{"an unreadable local file never falls back", "x402-seller", nil, errcode.TemplateInvalid, "not a directory"},
		{"a file that is no YAML", "broken", nil, errcode.TemplateInvalid, "line 1"},
		{"an unknown name", "nothing", nil, errcode.TemplateNotFound, `no template is called "nothing"`},
		{".yml is not found by name", "yml", nil, errcode.TemplateNotFound, ""},
		{"no reference", "", nil, errcode.TemplateNotFound, ""},
		{"a path", "./other.yaml", &Resolved{Ref: "./other.yaml", Path: "./other.yaml", Origin: OriginFile}, "", ""},
		{"a name with an extension is a path", "x402-facilitator.yaml", &Resolved{Ref: "x402-facilitator.yaml", Path: "x402-facilitator.yaml", Origin: OriginFile}, "", ""},
		{"a name with a space is a path", "a b", &Resolved{Ref: "a b", Path: "a b", Origin: OriginFile}, "", ""},
		{"a path to nothing", "shop.yaml", nil, errcode.TemplateNotFound, `no template file "shop.yaml"`},
		{"a path to a directory", "dir/", nil, errcode.TemplateInvalid, "is a directory"},
		{"a warning", "warns", &Resolved{Ref: "warns", Path: "root/templates/warns.yaml", Origin: OriginLocal,
			Warnings: []string{"line 8: the tag !odd is unknown or does not fit; the value is kept as it stands"}}, "", ""},
	} {
		got, err := lib.Resolve(c.ref, files)
		if c.want == nil {
			e := errcode.Of(err)
			if got != nil || e == nil || e.Code != c.code || !strings.Contains(e.Message, c.says) || e.Hint == "" {
				t.Errorf("%s: %v; want %s, %q and a hint", c.name, err, c.code, c.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Resolved{}, "Template")); diff != "" || got.Template == nil {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
	if _, err := lib.Resolve("./other.yaml", nil); errcode.Of(err).Code != errcode.TemplateNotFound {
		t.Errorf("a path where paths are not read: %v", err)
	}
	if r, err := (Library{}).Resolve(DefaultTemplate, nil); err != nil || r.Origin != OriginBuiltin {
		t.Errorf("without a local directory: %v", err)
	}
	if !IsName("a-Z_0") || IsName("") || IsName("a.b") || IsName("a/b") || IsName("é") {
		t.Error("names are confused with paths")
	}
}

func FuzzParseTemplate(f *testing.F) {
	for _, name := range Builtins() {
		f.Add(Builtin(name))
	}
	files, _ := filepath.Glob(filepath.Join(parityDir, "*", "template.yaml"))
	for _, file := range files {
		if src, err := os.ReadFile(file); err == nil {
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		tp, _, err := ParseTemplate(src)
		if (tp == nil) != (err != nil) {
			t.Fatal("a template and an error, or neither")
		}
		if err != nil {
			return
		}
		if tp.Name == "" || len(tp.Stages) == 0 || tp.Version-tp.Version != 0 {
			t.Fatalf("accepted: %+v", tp)
		}
		ids := map[string]bool{}
		for _, s := range tp.Stages {
			if s.ID == "" || ids[s.ID] || len(s.Match) == 0 {
				t.Fatalf("accepted: %+v", s)
			}
			ids[s.ID] = true
			for _, w := range s.Match {
				if w.Event == "" {
					t.Fatalf("accepted: %+v", s)
				}
			}
		}
		tp.Judge([]Pair{{Type: tp.Stages[0].Match[0].Event}})
	})
}
