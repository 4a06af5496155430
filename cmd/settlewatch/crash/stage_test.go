package crash

import (
	"slices"
	"strings"
	"testing"
)

// A row says what was seen, whatever that was.
func TestWhatASceneDidNotShowIsAProblem(t *testing.T) {
	const at = "2026-03-10T12:00:00.000Z"
	seller := "0x" + strings.Repeat("ab", 20)
	for _, c := range []struct {
		name    string
		fill    bool
		seen    sightings
		allowed int
		refused map[string]int
		paid    string // in the run file
		want    []string
	}{
		{"all of it", true, sightings{paid: 1}, 1, map[string]int{"per_counterparty_limit": 1}, "1000000", nil},
		{"nobody allowed", false, sightings{}, 0, map[string]int{"per_counterparty_limit": 1}, "1", []string{"nobody was allowed anything"}},
		{"no refusal", false, sightings{}, 1, nil, "1", []string{"the cap never refused anything"}},
		{"refused by something else", false, sightings{}, 1, map[string]int{"not_ready": 9}, "1", []string{"the cap never refused anything"}},
		{"not filled", true, sightings{}, 1, map[string]int{"limit:total": 1}, "999999", []string{"no cap was used up to its last unit"}},
		{"a payment that is in no file", false, sightings{paid: 2}, 2, map[string]int{"limit:total": 1}, "1", []string{"2 payments were made, and the run files hold 1"}},
		{"a half that is in no file", false, sightings{killedAt: map[string]int{StopHalf: 1}}, 1, map[string]int{"limit:total": 1}, "1",
			[]string{"1 payments were cut short by a kill, and the run files hold 0 halves"}},
	} {
		c.seen.asked = map[string]*verdicts{dollar: {allowed: c.allowed, refusedBy: c.refused}}
		s := &stage{scenario: scenario{name: "scene", fill: c.fill}, seen: &c.seen, roots: []*traceRoot{{
			dir: runFiles(t, map[string]string{"a.ndjson": paidLine(seller, dollar, c.paid, at) + "\n"}), ledgers: []ledger{dollars("1.00", true)},
		}}}
		rows, err := s.outcomes()
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		if !slices.Equal(rows[0].Problems, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, rows[0].Problems, c.want)
		}
		if rows[0].Failed() != (c.want != nil) {
			t.Errorf("%s: failed is %v", c.name, rows[0].Failed())
		}
	}
}
