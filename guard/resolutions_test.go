package guard_test

import (
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
)

func TestResolutionsSayWhoClosedAnOperation(t *testing.T) {
	file, public, err := decision.NewKey("file's name", []byte("four words"), 4)
	if err != nil {
		t.Fatal(err)
	}
	alice, err := decision.OpenKey(file, []byte("four words"))
	if err != nil {
		t.Fatal(err)
	}
	const unsigned = "unsigned (could be the agent)"
	for name, test := range map[string]struct {
		policy string
		by     decision.Signer
		want   string
		key    string
	}{
		"nobody signed":                     {"", nil, unsigned, ""},
		"a key that is no operator's":       {"", alice, unsigned, ""},
		"an operator, by the policy's name": {`{"operators": [{"name": "alice", "publicKey": "` + public + `"}]}`, alice, "alice", public},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, test.policy)
			s.submit("r1", "a", terms{})
			s.submit("r1", "b", terms{})
			s.clock.add(10 * time.Minute)
			a, b := "a", "b"
			refs := []decision.Ref{{Run: "r1", Operation: &b}, {Run: "r1", Operation: &a}, {Run: "gone"}, {Run: "r1"}}
			if found, err := s.Resolutions(t.Context(), refs); err != nil || len(found) != 4 || found[0] != nil || found[1] != nil {
				t.Fatalf("before anything was said: %v, %v", found, err)
			}
			if err := s.Resolve(t.Context(), []guard.Resolution{{Ref: refs[1], Outcome: "failed", Time: "2026-03-10T12:00:00+01:00", Note: "asked them", Signer: test.by}}); err != nil {
				t.Fatal(err)
			}
			found, err := s.Resolutions(t.Context(), refs)
			if err != nil || found[0] != nil || found[1] == nil || found[2] != nil || found[3] != nil {
				t.Fatalf("%v, %v", found, err)
			}
			got := found[1]
			if got.Outcome != "failed" || got.Time != "2026-03-10T11:00:00.000Z" || got.Note != "asked them" || got.DecidedBy != test.want || got.Key != test.key {
				t.Errorf("%+v", got)
			}
			if kept := s.state().Resolution(refs[1]); test.by != nil && kept.Key == "" {
				t.Error("the state itself was changed")
			}
			if err := s.Unresolve(t.Context(), refs[1], ""); err != nil {
				t.Fatal(err)
			}
			if found, err = s.Resolutions(t.Context(), refs); err != nil || found[1] != nil {
				t.Errorf("after it was taken back: %v, %v", found[1], err)
			}
		})
	}
}
