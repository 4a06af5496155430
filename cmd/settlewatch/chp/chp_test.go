package chp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// adapted is the answers of the adapter to lines.
func adapted(t *testing.T, lines ...string) []string {
	t.Helper()
	var out bytes.Buffer
	if err := Answer(strings.NewReader(strings.Join(lines, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	text, ok := strings.CutSuffix(out.String(), "\n")
	if !ok && len(lines) > 0 {
		t.Fatalf("the last answer is not a whole line: %q", text)
	}
	answers := strings.Split(text, "\n")
	if len(answers) != len(lines) {
		t.Fatalf("%d answers to %d lines", len(answers), len(lines))
	}
	return answers
}

type reply struct {
	OK     bool
	Result json.RawMessage
	Error  string
}

func replyOf(t *testing.T, answer string) reply {
	t.Helper()
	var r reply
	if err := json.Unmarshal([]byte(answer), &r); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	if r.OK == (r.Error != "") || r.OK == (r.Result == nil) {
		t.Fatalf("neither a result nor an error: %s", answer)
	}
	return r
}

func readJSON(t *testing.T, to any, path ...string) {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(append([]string{"..", "..", ".."}, path...)...))
	if err == nil {
		err = json.Unmarshal(src, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheAdapterAnswersTheVectorsOfCanonicalJSON(t *testing.T) {
	type outcome struct{ Canonical, SHA256, Reject string }
	var file struct {
		Vectors []struct {
			Name               string
			Input              string `json:"input_json"`
			Lexeme, Float, JCS outcome
		}
	}
	readJSON(t, &file, "guard", "canon", "testdata", "canonical.json")
	for _, v := range file.Vectors {
		for numbers, want := range map[string]outcome{"": v.Lexeme, `,"numbers":"lexeme"`: v.Lexeme, `,"numbers":null`: v.Lexeme, `,"numbers":"float"`: v.Float, `,"numbers":"jcs"`: v.JCS} {
			// A request is one line; line breaks in the vectors are white space.
			args := `"args":{"payload":` + strings.ReplaceAll(v.Input, "\n", " ") + numbers + `}}`
			answers := adapted(t, `{"op":"canonical_json",`+args, `{"op":"content_hash",`+args)
			text, hash := replyOf(t, answers[0]), replyOf(t, answers[1])
			if want.Reject != "" {
				if text.OK || hash.OK {
					t.Errorf("%s%s: %v, want a refusal for %s", v.Name, numbers, answers, want.Reject)
				}
				continue
			}
			var gotText, gotHash string
			if json.Unmarshal(text.Result, &gotText) != nil || json.Unmarshal(hash.Result, &gotHash) != nil || gotText != want.Canonical || gotHash != want.SHA256 {
				t.Errorf("%s%s: %v, want %+v", v.Name, numbers, answers, want)
			}
		}
	}
	if len(file.Vectors) < 60 {
		t.Errorf("%d vectors", len(file.Vectors))
	}
}

func TestTheAdapterAnswersTheVectorsOfTheGate(t *testing.T) {
	type vector struct {
		Name, Op string
		Args     string          `json:"args_json"`
		Expected json.RawMessage // a text for what must be refused
	}
	var file struct {
		Vectors    []vector
		MustRefuse []vector `json:"must_refuse"`
	}
	readJSON(t, &file, "guard", "approval", "testdata", "gate.json")
	ops := map[string]string{"evaluate": "evaluate_gate", "approve_human": "approve_human"}
	for _, v := range file.Vectors {
		r := replyOf(t, adapted(t, `{"op":"`+ops[v.Op]+`","args":`+v.Args+`}`)[0])
		var got, want any
		if json.Unmarshal(r.Result, &got) != nil || json.Unmarshal(v.Expected, &want) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s %s\nwant %s", v.Name, r.Result, r.Error, v.Expected)
		}
	}
	for _, v := range file.MustRefuse {
		r := replyOf(t, adapted(t, `{"op":"`+ops[v.Op]+`","args":`+v.Args+`}`)[0])
		if r.OK && !strings.Contains(string(r.Result), `"state":"BLOCKED"`) {
			t.Errorf("%s: %s", v.Name, r.Result)
		}
	}
	if len(file.Vectors) < 80 || len(file.MustRefuse) < 12 {
		t.Errorf("%d and %d vectors", len(file.Vectors), len(file.MustRefuse))
	}
}

func TestTheAdapterAnswersTheVectorsOfChains(t *testing.T) {
	var file struct {
		Chains []struct {
			Name  string
			Links []struct {
				Entry string `json:"entry_json"`
				Prev  string `json:"prev_sig"`
				Sig   string
			}
		}
	}
	readJSON(t, &file, "guard", "approval", "testdata", "ledger.json")
	for _, c := range file.Chains {
		for i, l := range c.Links {
			want := `{"ok":true,"result":"` + l.Sig + `"}`
			if got := adapted(t, `{"op":"chain_hash","args":{"prev_sig":"`+l.Prev+`","entry":`+l.Entry+`}}`)[0]; got != want {
				t.Errorf("%s, link %d: %s, want %s", c.Name, i+1, got, want)
			}
		}
	}
	if len(file.Chains) < 7 {
		t.Errorf("%d chains", len(file.Chains))
	}
}

// TestTheAdapterSurvivesHostileLines asks for something sound behind each: the answer
// to it has to come, in its place.
func TestTheAdapterSurvivesHostileLines(t *testing.T) {
	const sound = `{"op":"content_hash","args":{"payload":{}}}`
	const soundAnswer = `{"ok":true,"result":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}`
	payload := func(p string) string { return `{"op":"content_hash","args":{"payload":` + p + `}}` }
	for name, c := range map[string]struct{ line, says string }{
		"nothing":                      {"", "not-json"},
		"white space":                  {" \t", "not-json"},
		"no JSON":                      {"hello", "not-json"},
		"half of a request":            {sound[:20], "not-json"},
		"two requests on a line":       {sound + sound, "not-json"},
		"an array":                     {"[]", "the request: want an object, not array"},
		"no op":                        {`{"args":{}}`, "op is missing"},
		"no arguments":                 {`{"op":"content_hash"}`, "args is missing"},
		"an op that is a number":       {`{"op":1,"args":{}}`, "not supported"},
		"an op of another case":        {`{"op":"Content_Hash","args":{}}`, "not supported"},
		"the op __proto__":             {`{"op":"__proto__","args":{}}`, "not supported"},
		"the op constructor":           {`{"op":"constructor","args":{}}`, "not supported"},
		"an op to be cleaned":          {`{"op":"a\u001b[31m\u202eb","args":{}}`, "not supported"},
		"the op twice":                 {`{"op":"content_hash","op":"content_hash","args":{"payload":1}}`, "repeated-key"},
		"an argument twice":            {`{"op":"content_hash","args":{"payload":1,"payload":1}}`, "repeated-key"},
		"an argument nobody knows":     {`{"op":"content_hash","args":{"payload":1,"key":1}}`, "is not known here"},
		"arguments that are null":      {`{"op":"content_hash","args":null}`, "args: want an object, not null"},
		"arguments without a payload":  {`{"op":"content_hash","args":{}}`, "payload is missing"},
		"a key twice":                  {payload(`{"a":1,"\u0061":2}`), "repeated-key"},
		"a key twice deep inside":      {payload(`[[{"a":{"b":1,"b":1}}]]`), "repeated-key"},
		"NaN":                          {payload("NaN"), "not-json"},
		"Infinity":                     {payload("-Infinity"), "not-json"},
		"a number beyond doubles":      {payload("1e999"), "non-finite"},
		"half of a pair":               {payload(`"\udc00"`), "lone-surrogate"},
		"half of a pair in a key":      {payload(`{"\ud800":1}`), "lone-surrogate"},
		"bytes that are not UTF-8":     {payload("\"\xc3\x28\""), "invalid-utf8"},
		"a null byte":                  {payload("\x00"), "not-json"},
		"a byte order mark":            {"\ufeff" + sound, "not-json"},
		"a deep payload":               {payload(strings.Repeat("[", 100000)), "not-json"},
		"a deep payload that closes":   {payload(strings.Repeat("[", 50000) + strings.Repeat("]", 50000)), "not-json"},
		"a huge line":                  {payload(`"` + strings.Repeat("a", maxLine) + `"`), "a request of more than 8388608 bytes"},
		"a huge line of nothing":       {strings.Repeat(" ", maxLine+1), "a request of more than 8388608 bytes"},
		"a rule that does not exist":   {`{"op":"content_hash","args":{"payload":1,"numbers":"python"}}`, "unknown-rule"},
		"a rule that is a number":      {`{"op":"content_hash","args":{"payload":1,"numbers":1}}`, "unknown-rule"},
		"a signature that is null":     {`{"op":"chain_hash","args":{"prev_sig":null,"entry":1}}`, "args.prev_sig: want text, not null"},
		"a signature of half a pair":   {`{"op":"chain_hash","args":{"prev_sig":"\ud800","entry":1}}`, "invalid-utf8"},
		"no action":                    {`{"op":"evaluate_gate","args":{}}`, "action is missing"},
		"an amount that is text":       {`{"op":"evaluate_gate","args":{"action":{"action":"PAY","asset":"USDC","notional":"1"}}}`, "args.action: $.notional: want a number, not text"},
		"a cap beyond doubles":         {`{"op":"evaluate_gate","args":{"action":{"action":"PAY","asset":"USDC","notional":1},"policy":{"max_notional":1e999,"daily_cap":1,"hitl_threshold":1,"min_confidence":0}}}`, "args.policy: $.max_notional"},
		"a total that is text":         {`{"op":"evaluate_gate","args":{"action":{"action":"PAY","asset":"USDC","notional":1},"committed_today":"0"}}`, "args.committed_today"},
		"a total beyond doubles":       {`{"op":"evaluate_gate","args":{"action":{"action":"PAY","asset":"USDC","notional":1},"committed_today":-1e999}}`, "E_INPUT"},
		"nobody approves":              {`{"op":"approve_human","args":{"action":{"action":"PAY","asset":"USDC","notional":1}}}`, "approver is missing"},
		"an approver of blanks":        {`{"op":"approve_human","args":{"action":{"action":"PAY","asset":"USDC","notional":1},"approver":" "}}`, "E_INPUT"},
		"an approver that is a number": {`{"op":"approve_human","args":{"action":{"action":"PAY","asset":"USDC","notional":1},"approver":1}}`, "args.approver: want text, not number"},
	} {
		t.Run(name, func(t *testing.T) {
			answers := adapted(t, sound, c.line, sound)
			if answers[0] != soundAnswer || answers[2] != soundAnswer {
				t.Errorf("around it: %s, %s", answers[0], answers[2])
			}
			r := replyOf(t, answers[1])
			if r.OK || !strings.Contains(r.Error, c.says) || len(r.Error) > 3000 || strings.ContainsAny(r.Error, "\x1b\u202e") {
				t.Errorf("answered %.300s, want an error that says %q", answers[1], c.says)
			}
		})
	}
}

func TestTheAdapterAnswersTheLastLineWithoutItsNewline(t *testing.T) {
	for in, want := range map[string]int{"": 0, "\n": 1, "1": 1, "1\n": 1, "1\n2": 2, strings.Repeat("1", maxLine+1): 1, strings.Repeat("1", maxLine) + "\n": 1} {
		var out bytes.Buffer
		if err := Answer(strings.NewReader(in), &out); err != nil || strings.Count(out.String(), "\n") != want {
			t.Errorf("%.20q: %v, %.100q, want %d answers", in, err, out.String(), want)
		}
	}
}

type brokenPipe struct{}

var errBroken = errors.New("the pipe broke")

func (brokenPipe) Read([]byte) (int, error)  { return 0, errBroken }
func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

func TestTheAdapterEndsWithItsPipes(t *testing.T) {
	if err := Answer(brokenPipe{}, io.Discard); !errors.Is(err, errBroken) {
		t.Errorf("reading: %v", err)
	}
	if err := Answer(strings.NewReader("1\n2\n"), brokenPipe{}); !errors.Is(err, errBroken) {
		t.Errorf("writing: %v", err)
	}
}

func FuzzAnswerTo(f *testing.F) {
	f.Add([]byte(`{"op":"chain_hash","args":{"prev_sig":"","entry":{"a":1.0},"numbers":"jcs"}}`))
	f.Add([]byte(`{"op":"approve_human","args":{"action":{"action":"PAY","asset":"USDC","notional":250},"approver":"ana"}}`))
	f.Add([]byte(`{"op":"canonical_json","args":{"payload":"\ud800"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		answer := answerTo(line)
		var r reply
		if err := json.Unmarshal(answer, &r); err != nil || bytes.ContainsAny(answer, "\n\r") || r.OK == (r.Error != "") {
			t.Fatalf("%v: %q", err, answer)
		}
	})
}
