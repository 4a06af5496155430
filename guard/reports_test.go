package guard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones a report names, wherever the tests run
	"unicode"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// report is a case from the field: run files with one fault, what is asked and
// what must be answered. The run files beside X.json are X.ndjson, X.2.ndjson, ...
type report struct {
	Says   string          `json:"says"`
	Now    time.Time       `json:"now"`
	Policy json.RawMessage `json:"policy"`
	Asks   []struct {
		Ask struct {
			Counterparty string          `json:"counterparty"`
			Amount       string          `json:"amount"`
			Asset        string          `json:"asset"`
			Template     string          `json:"template"`
			Resource     string          `json:"resource"`
			PayTo        string          `json:"pay_to"`
			Offer        json.RawMessage `json:"offer"`
		} `json:"ask"`
		Now      time.Time    `json:"now"`  // zero: the report's
		Zone     string       `json:"zone"` // of the clock that is asked
		Decision string       `json:"decision"`
		Rules    []string     `json:"rules"`
		Error    errcode.Code `json:"error"` // instead of an answer
		Says     []string     `json:"says"`  // parts of the last reason, history
		Warnings []string     `json:"warnings"`
	} `json:"asks"`
}

func TestReportsFromTheField(t *testing.T) {
	files, err := fs.Glob(os.DirFS("testdata/reports"), "*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".json")
		t.Run(name, func(t *testing.T) { t.Parallel(); answerReport(t, name) })
	}
}

func answerReport(t *testing.T, name string) {
	src, err := os.ReadFile(filepath.Join("testdata/reports", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report
	dec := json.NewDecoder(strings.NewReader(string(src)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: t.TempDir(), clock: &clock{t: r.Now}}
	if err := os.Mkdir(filepath.Join(s.dir, "events"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := 1; ; i++ {
		suffix := ""
		if i > 1 {
			suffix = fmt.Sprintf(".%d", i)
		}
		text, err := os.ReadFile(filepath.Join("testdata/reports", name+suffix+".ndjson"))
		if errors.Is(err, fs.ErrNotExist) && i > 1 {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		s.raw(fmt.Sprintf("r%d", i), string(text))
	}
	s.open(string(r.Policy))
	for i, a := range r.Asks {
		at := r.Now
		if !a.Now.IsZero() {
			at = a.Now
		}
		if a.Zone != "" {
			zone, err := time.LoadLocation(a.Zone)
			if err != nil {
				t.Fatal(err)
			}
			at = at.In(zone)
		}
		s.clock.set(at)
		q := guard.Request{
			Counterparty: a.Ask.Counterparty, Amount: a.Ask.Amount, Asset: a.Ask.Asset, Template: a.Ask.Template,
			Resource: a.Ask.Resource, PayTo: a.Ask.PayTo, Offer: a.Ask.Offer,
		}
		v, err := s.Check(t.Context(), q)
		if a.Error != "" {
			if known := errcode.Of(err); known == nil || known.Code != a.Error {
				t.Errorf("%s: question %d: %+v, %v; want %s", r.Says, i+1, v, err, a.Error)
			} else {
				clean(t, known.Message, known.Hint)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: question %d: %v", r.Says, i+1, err)
			continue
		}
		if fired := firedBy(v); v.Decision != a.Decision || !slices.Equal(fired, a.Rules) {
			t.Errorf("%s: question %d: %s by %v, want %s by %v", r.Says, i+1, v.Decision, fired, a.Decision, a.Rules)
			for _, reason := range v.Reasons {
				t.Logf("  %s: %s", reason.Rule, reason.Detail)
			}
		}
		last := v.Reasons[len(v.Reasons)-1]
		for _, part := range a.Says {
			if !strings.Contains(last.Detail, part) {
				t.Errorf("%s: question %d: %q does not say %q", r.Says, i+1, last.Detail, part)
			}
		}
		for _, code := range a.Warnings {
			if !slices.Contains(v.Warnings, code) {
				t.Errorf("%s: question %d: warnings %v lack %s", r.Says, i+1, v.Warnings, code)
			}
		}
		for _, reason := range v.Reasons {
			clean(t, reason.Detail)
		}
		if v.ReviewID != "" {
			view, err := s.Review(t.Context(), v.ReviewID, 0)
			if err != nil {
				t.Fatal(err)
			}
			clean(t, view.Counterparty, view.Amount, view.Asset)
			for _, f := range view.Facts {
				clean(t, f.Name, f.Value)
			}
		}
	}
}

// firedBy gives the rules of a verdict but for history, which always stands last.
func firedBy(v *guard.Verdict) []string {
	fired := []string{}
	for _, reason := range v.Reasons[:len(v.Reasons)-1] {
		fired = append(fired, reason.Rule)
	}
	return fired
}

// clean holds texts for people to what the cleaner promises (guard contract,
// section 8).
func clean(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if len(text) > 2500 {
			t.Errorf("a text of %d bytes", len(text))
		}
		if i := strings.IndexFunc(text, func(c rune) bool { return unicode.IsControl(c) || unicode.Is(unicode.Cf, c) }); i >= 0 {
			t.Errorf("%+q is not clean", text)
		}
	}
}

// set moves the clock, and its zone with it.
func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = t
}
