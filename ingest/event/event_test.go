package event_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

const sound = `{"event_id":"e1","event_type":"x402.payment.required","occurred_at":"2026-11-30T09:42:33.789Z","context_id":"op","seq":1,"adapter":"trace-x402","role":"client","payload":{"x402_version":2}}`

// with is the sound line with one member replaced by the given source text;
// without a value the member is left out.
func with(name, value string) string {
	var out strings.Builder
	var d jsjson.Doc
	if err := d.Parse([]byte(sound)); err != nil {
		panic(err)
	}
	out.WriteByte('{')
	for n, v := range d.Root().Members() {
		text := string(v.Raw())
		if string(n.Text()) == name {
			if value == "" {
				continue
			}
			text = value
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		out.WriteString(string(n.Raw()) + ":" + text)
	}
	out.WriteByte('}')
	return out.String()
}

func TestASoundLineIsDecoded(t *testing.T) {
	var d jsjson.Doc
	line := []byte(sound)
	e, fault := event.Decode(&d, line)
	if fault != "" {
		t.Fatalf("fault %q", fault)
	}
	if string(e.ID) != "e1" || string(e.Type) != "x402.payment.required" || string(e.At) != "2026-11-30T09:42:33.789Z" || e.Seq != 1 {
		t.Errorf("got %q, %q, %q, %v", e.ID, e.Type, e.At, e.Seq)
	}
	if !e.HasRole || string(e.Role) != "client" || e.Op != event.TextOperation || string(e.OpID) != "op" {
		t.Errorf("got role %v %q, operation %v %q", e.HasRole, e.Role, e.Op, e.OpID)
	}
	if string(e.Payload.Raw()) != `{"x402_version":2}` || string(e.Root.Raw()) != sound {
		t.Errorf("got payload %s, root %s", e.Payload.Raw(), e.Root.Raw())
	}
	if &e.ID[0] != &line[bytes.Index(line, []byte("e1"))] {
		t.Error("plain text does not alias the line")
	}
	if k := e.Key(); string(k.At) != string(e.At) || k.Seq != 1 || string(k.ID) != "e1" {
		t.Errorf("got key %v", k)
	}
}

// Every row of the policy of the trace contract, section 3.
func TestThePolicy(t *testing.T) {
	for _, c := range []struct {
		name, line string
		fault      event.Fault
	}{
		// A complete line is a fault when it is not JSON …
		{"text that is no JSON", `not json`, event.FaultNotJSON},
		{"a line cut short", sound[:len(sound)-1], event.FaultNotJSON},
		{"two values on a line", sound + sound, event.FaultNotJSON},
		{"a byte order mark before the brace", "\uFEFF" + sound, event.FaultNotJSON},
		{"a no-break space before the brace", "\u00A0" + sound, event.FaultNotJSON},
		{"a NUL alone", "\x00", event.FaultNotJSON},
		{"U+0085 alone, which trim does not strip", "\u0085", event.FaultNotJSON},
		{"a hanging comma", `{"event_id":"e",}`, event.FaultNotJSON},
		{"nesting beyond 3000", strings.Repeat("[", 3001) + strings.Repeat("]", 3001), event.FaultTooDeep},
		{"nesting of 3000 in the payload", with("payload", strings.Repeat("[", 2999)+strings.Repeat("]", 2999)), ""},
		{"nesting beyond 3000 in the payload", with("payload", strings.Repeat("[", 3000)+strings.Repeat("]", 3000)), event.FaultTooDeep},
		// … not an object …
		{"null", `null`, event.FaultNotObject},
		{"a number", `1`, event.FaultNotObject},
		{"text", `"text"`, event.FaultNotObject},
		{"a boolean", `true`, event.FaultNotObject},
		{"a list", `[` + sound + `]`, event.FaultNotObject},
		// … when event_id, event_type or occurred_at is missing or not text …
		{"an empty object", `{}`, event.FaultEventID},
		{"event_id missing", with("event_id", ""), event.FaultEventID},
		{"event_id a number", with("event_id", "1"), event.FaultEventID},
		{"event_id null", with("event_id", "null"), event.FaultEventID},
		{"event_id an object", with("event_id", "{}"), event.FaultEventID},
		{"event_id empty text", with("event_id", `""`), ""},
		{"event_type missing", with("event_type", ""), event.FaultEventType},
		{"event_type null", with("event_type", "null"), event.FaultEventType},
		{"event_type a list", with("event_type", `["a"]`), event.FaultEventType},
		{"event_type unknown", with("event_type", `"a.b.c"`), ""},
		{"occurred_at missing", with("occurred_at", ""), event.FaultOccurredAt},
		{"occurred_at a number", with("occurred_at", "1796031753789"), event.FaultOccurredAt},
		{"occurred_at null", with("occurred_at", "null"), event.FaultOccurredAt},
		// … when seq is missing or not a JSON number …
		{"seq missing", with("seq", ""), event.FaultSeq},
		{"seq text", with("seq", `"1"`), event.FaultSeq},
		{"seq null", with("seq", "null"), event.FaultSeq},
		{"seq a boolean", with("seq", "true"), event.FaultSeq},
		// … or when context_id is present and neither text nor null.
		{"context_id a number", with("context_id", "1"), event.FaultContextID},
		{"context_id a boolean", with("context_id", "false"), event.FaultContextID},
		{"context_id an object", with("context_id", "{}"), event.FaultContextID},
		{"context_id a list", with("context_id", "[]"), event.FaultContextID},
		// Never a fault: the format of the time …
		{"a time without milliseconds", with("occurred_at", `"2026-01-01T00:00:00Z"`), ""},
		{"a time that is none", with("occurred_at", `"yesterday"`), ""},
		{"an empty time", with("occurred_at", `""`), ""},
		// … the value of seq …
		{"seq negative", with("seq", "-1"), ""},
		{"seq fractional", with("seq", "0.5"), ""},
		{"seq beyond any double", with("seq", "1E400"), ""},
		// … adapter, payload, role …
		{"adapter missing", with("adapter", ""), ""},
		{"adapter a number", with("adapter", "1"), ""},
		{"payload missing", with("payload", ""), ""},
		{"payload null", with("payload", "null"), ""},
		{"payload text", with("payload", `"x"`), ""},
		{"role missing", with("role", ""), ""},
		{"role null", with("role", "null"), ""},
		{"role a number", with("role", "7"), ""},
		// … unknown members, repeated keys.
		{"unknown members", with("adapter", `"a","Context_Id":7,"EVENT_TYPE":7,"more":[1]`), ""},
		{"a repeated key", with("adapter", `"a","adapter":"b"`), ""},
		{"white space around the object", " \t" + sound + "\r", ""},
		{"ill-formed UTF-8 inside text", with("event_id", "\"\xFF\""), ""},
		{"a lone surrogate", with("event_id", `"\ud800"`), ""},
	} {
		want := "is sound"
		if c.fault != "" {
			want = "is the fault " + string(c.fault)
		}
		t.Run(c.name+" "+want, func(t *testing.T) {
			var d jsjson.Doc
			e, fault := event.Decode(&d, []byte(c.line))
			if fault != c.fault {
				t.Fatalf("got fault %q, want %q", fault, c.fault)
			}
			if fault != "" && (e.ID != nil || e.Root != jsjson.Node{}) {
				t.Error("a fault comes with an event")
			}
			checkEvent(t, e, fault)
		})
	}
}

func TestNamesMatchExactly(t *testing.T) {
	for _, name := range []string{"Event_Id", "EVENT_TYPE", "occurredAt", "Seq", "event_id "} {
		line := strings.NewReplacer(`"event_id"`, `"`+name+`"`).Replace(sound)
		var d jsjson.Doc
		if _, fault := event.Decode(&d, []byte(line)); fault != event.FaultEventID {
			t.Errorf("%q was taken for event_id", name)
		}
	}
	var d jsjson.Doc
	e, fault := event.Decode(&d, []byte(strings.Replace(sound, `"context_id"`, `"Context_Id"`, 1)))
	if fault != "" || e.Op != event.NoOperation || e.OpID != nil {
		t.Errorf("Context_Id gave operation %v %q, fault %q", e.Op, e.OpID, fault)
	}
	e, fault = event.Decode(&d, []byte(strings.Replace(sound, `"context_id"`, `"\u0063ontext_id"`, 1)))
	if fault != "" || string(e.OpID) != "op" {
		t.Errorf("an escaped name is the name: got %q, fault %q", e.OpID, fault)
	}
}

func TestOperations(t *testing.T) {
	for _, c := range []struct {
		name, value string
		kind        event.OpKind
		id          string
	}{
		{"absent is no operation", "", event.NoOperation, ""},
		{"empty text is no operation", `""`, event.NoOperation, ""},
		{"null is an operation", "null", event.NullOperation, ""},
		{"a space is an ordinary id", `" "`, event.TextOperation, " "},
		{"a prototype name is an ordinary id", `"__proto__"`, event.TextOperation, "__proto__"},
		{"the text null is an ordinary id", `"null"`, event.TextOperation, "null"},
		{"escapes are resolved", `"\u0061\ud83d\ude00"`, event.TextOperation, "a😀"},
		{"a lone surrogate is kept", `"\ud800"`, event.TextOperation, "\xED\xA0\x80"},
		{"ill-formed UTF-8 is replaced", "\"\xE2\x82\"", event.TextOperation, "\uFFFD"},
		{"the last copy counts", `"a","context_id":"b"`, event.TextOperation, "b"},
		{"the last copy counts when null", `"a","context_id":null`, event.NullOperation, ""},
		{"the last copy counts when empty", `"a","context_id":""`, event.NoOperation, ""},
		{"a bad copy before the last is forgotten", `7,"context_id":"b"`, event.TextOperation, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d jsjson.Doc
			e, fault := event.Decode(&d, []byte(with("context_id", c.value)))
			if fault != "" || e.Op != c.kind || string(e.OpID) != c.id {
				t.Errorf("got %v %q, fault %q", e.Op, e.OpID, fault)
			}
		})
	}
}

func TestOfARepeatedMemberTheLastCounts(t *testing.T) {
	var d jsjson.Doc
	line := strings.TrimSuffix(sound, "}") + `,"event_id":"e2","\u0065vent_type":"t2","occurred_at":"a2","seq":-2,"role":"r2","payload":[2]}`
	e, fault := event.Decode(&d, []byte(line))
	if fault != "" {
		t.Fatalf("fault %q", fault)
	}
	if string(e.ID) != "e2" || string(e.Type) != "t2" || string(e.At) != "a2" || e.Seq != -2 || string(e.Role) != "r2" || string(e.Payload.Raw()) != "[2]" {
		t.Errorf("got %q %q %q %v %q %s", e.ID, e.Type, e.At, e.Seq, e.Role, e.Payload.Raw())
	}
	for member, want := range map[string]event.Fault{
		`"event_id":1`: event.FaultEventID, `"event_type":null`: event.FaultEventType, `"occurred_at":1`: event.FaultOccurredAt,
		`"seq":"1"`: event.FaultSeq, `"context_id":1`: event.FaultContextID,
	} {
		if _, fault := event.Decode(&d, []byte(strings.TrimSuffix(sound, "}")+","+member+"}")); fault != want {
			t.Errorf("last copy %s: got fault %q, want %q", member, fault, want)
		}
	}
	e, fault = event.Decode(&d, []byte(strings.TrimSuffix(sound, "}")+`,"role":null}`))
	if fault != "" || e.HasRole || e.Role != nil {
		t.Errorf("a last role of null: got %v %q, fault %q", e.HasRole, e.Role, fault)
	}
}

func TestOfSeveralFaultsTheFirstIsNamed(t *testing.T) {
	var d jsjson.Doc
	line := `{"context_id":1,"seq":"x","occurred_at":1,"event_type":1,"event_id":1}`
	for _, c := range []struct {
		fix, to string
		fault   event.Fault
	}{
		{"", "", event.FaultEventID},
		{`"event_id":1`, `"event_id":"e"`, event.FaultEventType},
		{`"event_type":1`, `"event_type":"t"`, event.FaultOccurredAt},
		{`"occurred_at":1`, `"occurred_at":"a"`, event.FaultSeq},
		{`"seq":"x"`, `"seq":0`, event.FaultContextID},
		{`"context_id":1`, `"context_id":"c"`, ""},
	} {
		line = strings.Replace(line, c.fix, c.to, 1)
		if _, fault := event.Decode(&d, []byte(line)); fault != c.fault {
			t.Errorf("%s: got %q, want %q", line, fault, c.fault)
		}
	}
}

func TestRolesAndPayloads(t *testing.T) {
	var d jsjson.Doc
	for value, want := range map[string]string{"": "none", "null": "none", "7": "none", `""`: "text ", `"server"`: "text server"} {
		e, fault := event.Decode(&d, []byte(with("role", value)))
		got := "none"
		if e.HasRole {
			got = "text " + string(e.Role)
		}
		if fault != "" || got != want {
			t.Errorf("role %s: got %s, fault %q", value, got, fault)
		}
	}
	for value, want := range map[string]jsjson.Kind{"": jsjson.Absent, "null": jsjson.Null, `"x"`: jsjson.String, "{}": jsjson.Object} {
		if e, _ := event.Decode(&d, []byte(with("payload", value))); e.Payload.Kind() != want {
			t.Errorf("payload %s is %v", value, e.Payload.Kind())
		}
	}
}

func TestSeqIsTheDouble(t *testing.T) {
	var d jsjson.Doc
	for value, want := range map[string]float64{
		"0": 0, "-1": -1, "1.5": 1.5, "1e2": 100, "9007199254740993": 9007199254740992, "1E400": math.Inf(1), "-1E400": math.Inf(-1),
	} {
		if e, fault := event.Decode(&d, []byte(with("seq", value))); fault != "" || e.Seq != want {
			t.Errorf("seq %s: got %v, fault %q", value, e.Seq, fault)
		}
	}
}

func TestEveryFaultHasAMessage(t *testing.T) {
	faults := []event.Fault{
		event.FaultNotJSON, event.FaultTooDeep, event.FaultNotObject, event.FaultEventID, event.FaultEventType, event.FaultOccurredAt,
		event.FaultSeq, event.FaultContextID, event.FaultTooLong, event.FaultEntry,
	}
	seen := map[string]bool{}
	for _, f := range faults {
		m := f.Message()
		if m == "" || strings.HasSuffix(m, ".") || strings.HasPrefix(m, "unknown") || seen[m] || len(m) > 80 {
			t.Errorf("%s: message %q", f, m)
		}
		seen[m] = true
	}
	if event.Fault("").Message() != "" {
		t.Error("a sound line has a message")
	}
	if got := event.Fault("new").Message(); got != "unknown fault new" {
		t.Errorf("got %q", got)
	}
}

func TestKeysAreOrdered(t *testing.T) {
	inf := math.Inf(1)
	key := func(at string, seq float64, id string) event.Key {
		return event.Key{At: []byte(at), Seq: seq, ID: []byte(id)}
	}
	for _, c := range []struct {
		name       string
		less, more event.Key
	}{
		{"time decides first", key("2026-01-01T00:00:00.000Z", 9, "z"), key("2026-01-01T00:00:00.001Z", 0, "a")},
		{"times are compared as text", key("2026-01-01T00:00:00.000Z", 9, "z"), key("2026-01-01T00:00:00Z", 0, "a")},
		{"an offset is text too", key("2026-01-01T01:00:00.000+02:00", 9, "z"), key("2026-01-01T01:00:00.000Z", 0, "a")},
		{"seq is a number", key("t", 9, "z"), key("t", 10, "a")},
		{"seq may be negative", key("t", -1, "z"), key("t", 0, "a")},
		{"equal seq leaves it to the id", key("t", 1, "a"), key("t", 1, "b")},
		{"negative zero is zero", key("t", math.Copysign(0, -1), "a"), key("t", 0, "b")},
		{"both infinite leaves it to the id", key("t", inf, "a"), key("t", inf, "b")},
		{"infinity is beyond every number", key("t", math.MaxFloat64, "z"), key("t", inf, "a")},
		{"infinities of two signs differ", key("t", -inf, "z"), key("t", inf, "a")},
		{"ids are compared by code unit", key("t", 1, "😀"), key("t", 1, "ﬀ")},
		{"times are compared by code unit", key("😀", 1, ""), key("ﬀ", 1, "")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.less.Compare(c.more) != -1 || c.more.Compare(c.less) != 1 {
				t.Errorf("got %d and %d", c.less.Compare(c.more), c.more.Compare(c.less))
			}
			if c.less.Compare(c.less) != 0 {
				t.Error("a key is not equal to itself")
			}
		})
	}
}

func TestTheOrderOfKeysIsTotal(t *testing.T) {
	texts := []string{"", "a", "b", "😀", "ﬀ", "\xED\xA0\x80"}
	seqs := []float64{math.Inf(-1), -1, 0, math.Copysign(0, -1), 0.5, 1, math.Inf(1)}
	r := rand.New(rand.NewPCG(1, 2))
	random := func() event.Key {
		return event.Key{At: []byte(texts[r.IntN(2)]), Seq: seqs[r.IntN(len(seqs))], ID: []byte(texts[r.IntN(len(texts))])}
	}
	for range 50_000 {
		a, b, c := random(), random(), random()
		if a.Compare(b) != -b.Compare(a) {
			t.Fatalf("%v and %v are not antisymmetric", a, b)
		}
		if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Fatalf("%v, %v, %v are not transitive", a, b, c)
		}
	}
}

func TestRecordedRunsAreSound(t *testing.T) {
	names, err := filepath.Glob("../../testdata/runs/*/events/*.ndjson")
	if err != nil || len(names) == 0 {
		t.Fatalf("find the recorded runs: %v, %d files", err, len(names))
	}
	var d jsjson.Doc
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range bytes.Lines(data) {
			n++
			e, fault := event.Decode(&d, line)
			if fault != "" {
				t.Fatalf("%s, line %d: %s", name, n, fault.Message())
			}
			checkEvent(t, e, fault)
			if _, ok := event.Canonical(e.At); !ok {
				t.Errorf("%s, line %d: the time %q is not canonical", name, n, e.At)
			}
		}
	}
}

func TestDecodingAllocatesNothing(t *testing.T) {
	var d jsjson.Doc
	line := []byte(sound)
	if n := testing.AllocsPerRun(100, func() {
		if _, fault := event.Decode(&d, line); fault != "" {
			t.Fatal(fault)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// checkEvent holds what is true of every decoded line.
func checkEvent(t *testing.T, e event.Event, fault event.Fault) {
	t.Helper()
	if fault != "" {
		if fault.Message() == "" || strings.HasPrefix(fault.Message(), "unknown") {
			t.Fatalf("fault %q has no message", fault)
		}
		return
	}
	if e.ID == nil || e.Type == nil || e.At == nil || math.IsNaN(e.Seq) {
		t.Fatalf("a sound event lacks a member: %q %q %q %v", e.ID, e.Type, e.At, e.Seq)
	}
	if (e.Op == event.TextOperation) != (len(e.OpID) > 0) || !e.HasRole && e.Role != nil || e.HasRole && e.Role == nil {
		t.Fatalf("operation %v %q, role %v %q", e.Op, e.OpID, e.HasRole, e.Role)
	}
	for name, got := range map[string][]byte{"event_id": e.ID, "event_type": e.Type, "occurred_at": e.At} {
		if want := e.Root.Get(name).Text(); !bytes.Equal(got, want) {
			t.Fatalf("%s is %q, want %q", name, got, want)
		}
	}
	if got := e.Root.Get("payload"); got != e.Payload {
		t.Fatalf("payload is %s, want %s", e.Payload.Raw(), got.Raw())
	}
	if e.Key().Compare(e.Key()) != 0 {
		t.Fatal("the key is not equal to itself")
	}
	checkTime(t, e.At)
}

// The lines of the parity vectors, of every recorded run, and of a long one.
const vectors, recordedRuns, longRun = "parity/*", "runs/*", "runs/14-long-run"

// linesOf is the lines of run files of the test data.
func linesOf(tb testing.TB, roots string) (lines [][]byte) {
	tb.Helper()
	names, err := filepath.Glob("../../testdata/" + roots + "/events/*.ndjson")
	if err != nil || len(names) == 0 {
		tb.Fatalf("find %s: %v, %d files", roots, err, len(names))
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	return lines
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(sound))
	for _, name := range []string{"event_id", "event_type", "occurred_at", "seq", "context_id", "role", "payload"} {
		for _, value := range []string{"", "null", `""`, "1", "1E400", "{}", `"\ud800"`, `"2026-11-30T09:42:33.7Z"`} {
			f.Add([]byte(with(name, value)))
		}
	}
	for _, line := range linesOf(f, vectors) {
		if len(line) < 4096 {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var d jsjson.Doc
		before := bytes.Clone(line)
		e, fault := event.Decode(&d, line)
		checkEvent(t, e, fault)
		if isJSON := d.Parse(line) == nil; isJSON == (fault == event.FaultNotJSON || fault == event.FaultTooDeep) {
			t.Fatalf("fault %q, JSON %v", fault, isJSON)
		}
		if !bytes.Equal(line, before) {
			t.Fatal("the line was changed")
		}
	})
}
