package guard_test

import (
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// Whatever takes a note or a reason holds it to one rule, before anything is written.
func TestEveryActHoldsItsNoteToTheSameRule(t *testing.T) {
	s := newSite(t, "")
	op := "a"
	ref := decision.Ref{Run: "r1", Operation: &op}
	lines := s.state().Lines()
	for name, act := range map[string]func(note string) error{
		"decide": func(note string) error {
			_, err := s.Decide(t.Context(), guard.Decision{IDs: []string{"r-00000000"}, Decision: "rejected", Note: note})
			return err
		},
		"freeze":   func(note string) error { _, err := s.Freeze(t.Context(), "", note); return err },
		"unfreeze": func(note string) error { return s.Unfreeze(t.Context(), "", note, nil) },
		"resolve": func(note string) error {
			return s.Resolve(t.Context(), []guard.Resolution{{Ref: ref, Outcome: "failed", Note: note}})
		},
		"unresolve":   func(note string) error { return s.Unresolve(t.Context(), ref, note) },
		"acknowledge": func(note string) error { _, err := s.Acknowledge(t.Context(), "", note, nil); return err },
		"baseline":    func(note string) error { _, _, err := s.Baseline(t.Context(), note, nil); return err },
		"end a hold":  func(note string) error { return s.EndHold(t.Context(), "h-1", note) },
	} {
		for says, note := range map[string]string{
			"2,001 characters": strings.Repeat("ж", 2001), "2,002 characters": strings.Repeat("😀", 1001), "not UTF-8": "a\xff",
		} {
			if err := act(note); err == nil || errcode.Of(err).Code != errcode.Input || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if n := s.state().Lines(); n != lines {
		t.Errorf("it wrote %d lines", n-lines)
	}
	if _, err := s.Freeze(t.Context(), "", strings.Repeat("ж", 2000)); err != nil {
		t.Errorf("as long as it may be: %v", err)
	}
}
