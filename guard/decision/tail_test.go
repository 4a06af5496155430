package decision

import (
	"fmt"
	"strings"
	"testing"
)

func TestTheTailIsReadFromTheEnd(t *testing.T) {
	f := newFixture(t)
	if found, more, err := f.Tail(t.Context(), 0, 10, func(*Line) bool { return true }); len(found) != 0 || more || err != nil {
		t.Errorf("of no log: %v %v %v", found, more, err)
	}
	long := strings.Repeat("x", 100_000) // a line longer than what is read at once
	for i := range 20 {
		reason := fmt.Sprint(i)
		if i == 7 {
			reason += long
		}
		f.write(Frozen{Scope: "a.example", Reason: reason}, Denied{Tool: "t", ReasonCode: "x", Detail: reason, ReceiptID: "d"})
	}
	denials := func(l *Line) bool { return l.Type == "denied" }
	var seen []string
	before, pages := int64(0), 0
	for {
		found, more, err := f.Tail(t.Context(), before, 3, denials)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range found {
			seen = append(seen, strings.TrimSuffix(l.Body.(*Denied).Detail, long))
			before = l.Seq
			if !strings.Contains(string(l.Raw), l.Sig) {
				t.Errorf("line %d is %.80s", l.Seq, l.Raw)
			}
		}
		if pages++; !more {
			break
		}
	}
	if pages != 7 || len(seen) != 20 || seen[0] != "19" || seen[12] != "7" || seen[19] != "0" {
		t.Errorf("%d pages of %v", pages, seen)
	}
	// What is torn behind the last line is no line.
	f.set(append(f.bytes(), []byte(`{"seq":`)...))
	if found, _, err := f.Tail(t.Context(), 0, 1, denials); err != nil || len(found) != 1 || found[0].Seq != 40 {
		t.Errorf("%v %v", found, err)
	}
}
