package event_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

// checkRecorded holds Recorded against Decode: where the short way reads a line
// and its payload is one object, the line is sound and the event the same.
func checkRecorded(t *testing.T, line []byte) (short bool) {
	t.Helper()
	var d jsjson.Doc
	got, payload, ok := event.Recorded(line)
	if !ok {
		if payload != nil || got.ID != nil || got.Op != 0 {
			t.Fatalf("%s: something is left of it", line)
		}
		return false
	}
	if d.Parse(payload) != nil || d.Root().Kind() != jsjson.Object {
		return false
	}
	want, fault := event.Decode(&d, line)
	same := bytes.Equal(got.ID, want.ID) && bytes.Equal(got.Type, want.Type) && bytes.Equal(got.At, want.At) && got.Seq == want.Seq &&
		bytes.Equal(got.Role, want.Role) && got.HasRole == want.HasRole && got.Op == want.Op && bytes.Equal(got.OpID, want.OpID) &&
		bytes.Equal(payload, want.Payload.Raw()) && got.Root.Kind() == jsjson.Absent && got.Payload.Kind() == jsjson.Absent
	if fault != "" || !same {
		t.Fatalf("%s: %q\n%+v\n%+v", line, fault, got, want)
	}
	return true
}

const purchase = `{"event_id":"e","event_type":"x402.payment.creating","occurred_at":"2026-11-30T09:42:33.780Z","context_id":"c","seq":7,"adapter":"trace-x402","role":"client","payload":{"x402_version":2}}`

func TestLinesOfPurchasesAreReadTheShortWay(t *testing.T) {
	if !checkRecorded(t, []byte(purchase)) {
		t.Error("a plain line is not read")
	}
	for _, line := range linesOf(t, recordedRuns) {
		isPurchase := bytes.Contains(line, []byte(`"adapter":"trace-x402"`)) && bytes.Contains(line, []byte(`"context_id"`))
		if checkRecorded(t, line) != isPurchase {
			t.Fatalf("%s: read the short way: %v", line, !isPurchase)
		}
	}
}

func TestOtherLinesAreNotReadTheShortWay(t *testing.T) {
	for _, edit := range [][2]string{
		{`{"event_id"`, ` {"event_id"`}, {`"seq":7`, `"seq": 7`}, {`2}}`, `2}} `}, {`2}}`, "2}}\r"}, // white space
		{`"e"`, `"\u0065"`}, {`"client"`, `"cli\nent"`}, {`"c"`, `"ü"`}, {`"c"`, "\"\xFF\""}, // texts that are not plain
		{`"c"`, `""`}, {`"c"`, `null`}, {`"e"`, `1`}, {`"seq":7`, `"seq":-7`}, {`"seq":7`, `"seq":7.0`}, {`"seq":7`, `"seq":07`}, {`"seq":7`, `"seq":1e3`}, {`"seq":7`, `"seq":"7"`},
		{`"seq":7`, `"seq":7,"seq":8`}, {`"role"`, `"Role"`}, {`"role"`, `"rolf"`}, {`"context_id":"c",`, ``}, {`"role":"client",`, ``}, // other members
		{`"payload":{"x402_version":2}`, `"payload":[]`}, {`2}}`, `2},"x":1}`}, {`2}}`, `2}`}, {`2}}`, `2}}}`}, {`2}}`, `2}} {}`},
	} {
		line := strings.Replace(purchase, edit[0], edit[1], 1)
		if line == purchase {
			t.Fatalf("%s is not there", edit[0])
		}
		if checkRecorded(t, []byte(line)) {
			t.Errorf("%s: read the short way", line)
		}
	}
}

func FuzzRecorded(f *testing.F) {
	f.Add([]byte(purchase))
	f.Add([]byte(sound))
	for _, line := range linesOf(f, vectors) {
		if len(line) < 4096 {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) { checkRecorded(t, line) })
}
