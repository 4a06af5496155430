package ingest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// bothWays fills one index of run files one by one in their order, another in the
// opposite one, and a third with all at once, and holds them to one answer.
func bothWays(t *testing.T, texts map[string]string, ask func(x *Indexer) (any, error)) string {
	t.Helper()
	var answers []string
	for _, how := range []string{"in order", "backwards", "at once"} {
		root, path := newRoot(t)
		files := sortedKeys(texts)
		if how == "backwards" {
			slices.Reverse(files)
		}
		x := open(t, root)
		for _, file := range files {
			write(t, path(file), texts[file])
			if how != "at once" {
				if err := x.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, err := ask(x)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, string(text))
	}
	for _, a := range answers[1:] {
		if a != answers[0] {
			t.Errorf("it depends on the index:\n%s", strings.Join(answers, "\n"))
		}
	}
	return answers[0]
}

func sortedKeys(texts map[string]string) (keys []string) {
	for k := range texts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func TestTheEarliestAnswerIsTheOtherHalfOfAPayment(t *testing.T) {
	const hash = "0xabc"
	paid := line("p", 1, "submitted") + settle(line("p", 2, "settle.failed"), hash, false)
	in := func(op string, n int) string { return settle(line(op, n, "responded"), hash, true) }
	in0 := func(n int) string { return strings.Replace(in("none", n), `"context_id":"none",`, "", 1) }
	for name, c := range map[string]struct {
		a, z string // what two runs say
		want Ref
	}{
		"of one instant by run id":                {in("a", 5), in("z", 5), Ref{Run: "a", Operation: "a"}},
		"an earlier one in a later run":           {in("a", 6), in("z", 5), Ref{Run: "z", Operation: "z"}},
		"in no operation, of one instant":         {in0(5), in0(5), Ref{Run: "a", Unassigned: true}},
		"in no operation, earlier in a later run": {in0(6), in0(5), Ref{Run: "z", Unassigned: true}},
		"in an operation before one in none":      {in0(5), in("z", 6), Ref{Run: "z", Operation: "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			texts := map[string]string{"a.ndjson": c.a, "p.ndjson": paid, "z.ndjson": c.z}
			for file, text := range texts {
				texts[file] = strings.ReplaceAll(text, `"x402_version":2,`, `"x402_version":2,"resource":{"url":"https://s.example/x"},`)
			}
			got := bothWays(t, texts, func(x *Indexer) (any, error) {
				p, err := x.List(t.Context(), Query{})
				if err != nil {
					return nil, err
				}
				for _, row := range p.Operations {
					if row.Run == "p" {
						return row.Linked, nil
					}
				}
				return nil, fmt.Errorf("the payment is not listed")
			})
			if want, _ := json.Marshal(c.want); got != string(want) {
				t.Errorf("it is linked with %s, want %s", got, want)
			}
		})
	}
}

// Everything here is of one instant, and more than is looked at.
func TestPicturesOfThePastDoNotDependOnTheIndex(t *testing.T) {
	texts := map[string]string{}
	for _, run := range []string{"a", "m", "z"} {
		var text strings.Builder
		for i := range 150 {
			op := fmt.Sprintf("%s%03d", run, i)
			url := fmt.Sprintf("https://%s%d.example/x", run, i%90)
			text.WriteString(sold(op, 1, "submitted", url) + sold(op, 1+10*(i%7)+len(run), "responded", url))
		}
		texts[run+".ndjson"] = text.String()
	}
	t.Run("counterparties", func(t *testing.T) {
		bothWays(t, texts, func(x *Indexer) (any, error) { return x.Parties(t.Context(), 20) })
	})
	t.Run("one of them", func(t *testing.T) {
		got := bothWays(t, texts, func(x *Indexer) (any, error) { return x.Party(t.Context(), []string{seller}) })
		var view PartyView
		if err := json.Unmarshal([]byte(got), &view); err != nil || len(view.Newest) != partyRows || len(view.Together) == 0 {
			t.Errorf("%d payments and %d hosts (%v)", len(view.Newest), len(view.Together), err)
		}
	})
}

func TestDaysComeByAssetWhateverTheIndexMetFirst(t *testing.T) {
	const usdc = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	paid := sold("a", 1, "submitted", "https://shop.example/x")
	other := strings.ReplaceAll(paid, usdc, "0x"+strings.Repeat("1", 40))
	if other == paid {
		t.Fatal("the payment is in another asset than was thought")
	}
	bothWays(t, map[string]string{"a.ndjson": paid, "z.ndjson": other}, func(x *Indexer) (any, error) {
		days, err := x.Days(t.Context(), time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC))
		if err == nil && len(days) != 2 {
			err = fmt.Errorf("%d sums of a day in two assets", len(days))
		}
		return days, err
	})
}

func TestAWalkShowsTheSameOperationOfTwoFilesOfOneRunIDTwice(t *testing.T) {
	paid := func(amount string) string {
		return strings.ReplaceAll(sold("a", 1, "submitted", "https://shop.example/x"), `"4200"`, `"`+amount+`"`)
	}
	texts := map[string]string{".ndjson": paid("1"), ".ndjson.ndjson": paid("2"), "r.ndjson": paid("3")}
	for _, oldest := range []bool{false, true} {
		got := bothWays(t, texts, func(x *Indexer) (any, error) {
			var amounts []string
			for q := (Query{Limit: 1, Oldest: oldest}); ; {
				page, err := x.List(t.Context(), q)
				if err != nil {
					return nil, err
				}
				for _, o := range page.Operations {
					amounts = append(amounts, o.Amount)
				}
				if q.Cursor = page.NextCursor; q.Cursor == "" {
					return amounts, nil
				}
			}
		})
		if want := map[bool]string{false: `["3","2","1"]`, true: `["1","2","3"]`}[oldest]; got != want {
			t.Errorf("oldest first %t: the amounts are %s, want %s", oldest, got, want)
		}
	}
}
