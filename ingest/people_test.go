package ingest

import (
	"context"
	"strings"
	"testing"
	"time"
)

// sold is a line with a resource, whose host is then a name of the payment. kind
// responded reports a settlement.
func sold(op string, n int, kind, url string) string {
	with := `"x402_version":2,"resource":{"url":"` + url + `"},`
	if kind == "responded" {
		with += `"settle":{"success":true,"network":"eip155:8453"},`
	}
	return strings.Replace(line(op, n, kind), `"x402_version":2,`, with, 1)
}

const seller = "0x7a1de5000000000000000000000000000000a1e5"

func TestPeopleSeeWhereMoneyWent(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), sold("a", 1, "submitted", "https://shop.example/x")+sold("a", 2001, "responded", "https://shop.example/x")+
		sold("b", 3000, "submitted", "https://shop.example/x")+sold("c", 4000, "submitted", "https://other.example/y")+"no JSON\n"+strings.Repeat("x", 300)+"\n")
	x := open(t, root)
	ctx := context.Background()
	day := time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	days, err := x.Days(ctx, day)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range days {
		if !d.Day.Equal(day) || d.Asset != "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913" || d.Unreadable != 0 {
			t.Errorf("%+v", d)
		}
		got[d.State] = d.Amount
	}
	if len(got) != 2 || got["settled"] != "4200" || got["open"] != "8400" {
		t.Errorf("the days are %+v", days)
	}
	if later, err := x.Days(ctx, day.AddDate(0, 0, 1)); err != nil || len(later) != 0 {
		t.Errorf("%v, %v", later, err)
	}
	// What becomes of a payment later moves it from one sum to another.
	appendTo(t, path("r.ndjson"), sold("b", 3500, "responded", "https://shop.example/x"))
	days, err = x.Days(ctx, day)
	if err != nil || len(days) != 2 || days[0].Amount != "4200" || days[1].Amount != "8400" || days[1].State != "settled" {
		t.Errorf("the days are %+v, %v", days, err)
	}
	mustBeSound(t, x)

	all, err := x.Parties(ctx, 10)
	if err != nil || len(all) != 2 || all[0].Name != "other.example" || all[1].Name != "shop.example" {
		t.Fatalf("%+v, %v", all, err)
	}
	if p := all[1]; p.Operations != 2 || len(p.Settled) != 2 || p.Settled[0] != 500*time.Millisecond || p.Settled[1] != 2*time.Second {
		t.Errorf("%+v", p)
	}
	if few, err := x.Parties(ctx, 1); err != nil || len(few) != 1 {
		t.Errorf("%+v, %v", few, err)
	}
	view, err := x.Party(ctx, []string{"nobody.example", seller})
	if err != nil || !view.Known || len(view.Together) != 2 || len(view.Newest) != 3 {
		t.Fatalf("%+v, %v", view, err)
	}
	if n := view.Newest[0]; n.Operation != "c" || n.Run != "r" || n.Settled || n.Host != "other.example" || n.Payee != seller || n.Amount != "4200" {
		t.Errorf("the newest is %+v", n)
	}
	for _, pair := range view.Together {
		if want := map[string]int64{"shop.example": 2}[pair.Host]; pair.Settled != want || pair.Payee != seller || pair.Open != 1-want/2 {
			t.Errorf("%+v", pair)
		}
	}
	if view, err := x.Party(ctx, []string{"nobody.example"}); err != nil || view.Known {
		t.Errorf("%+v, %v", view, err)
	}

	runs, err := x.NewestRuns(ctx, 0, 10)
	if err != nil || len(runs) != 1 || runs[0].Faults != 2 || runs[0].Size != runs[0].Covered || runs[0].Operations != 3 {
		t.Errorf("%+v, %v", runs, err)
	}
	faults, err := x.FaultLines(ctx, "r", 5, 100)
	if err != nil || len(faults) != 2 {
		t.Fatalf("%+v, %v", faults, err)
	}
	if f := faults[0]; string(f.Bytes) != "no JSON" || f.Cut || f.Line != 5 {
		t.Errorf("%+v", f)
	}
	if f := faults[1]; len(f.Bytes) != 100 || !f.Cut {
		t.Errorf("%+v", f)
	}
}

func TestAListCanBeginWithTheOldest(t *testing.T) {
	root, path := newRoot(t)
	var text strings.Builder
	const n = 23
	for i := range n {
		text.WriteString(sold(string(rune('a'+i)), i, []string{"submitted", "responded"}[i%2], "https://shop.example/x"))
	}
	write(t, path("r.ndjson"), text.String())
	x := open(t, root)
	for _, q := range []Query{{}, {Settlement: "unknown"}, {Counterparty: "shop.example"}, {Run: "latest"}} {
		walk := func(q Query) (out []string) {
			for q.Limit = 4; ; {
				page, err := x.List(context.Background(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range page.Operations {
					out = append(out, o.Operation)
				}
				if q.Cursor = page.NextCursor; q.Cursor == "" {
					return out
				}
			}
		}
		newest := walk(q)
		q.Oldest = true
		oldest := walk(q)
		if len(newest) == 0 || q.Settlement == "" && len(newest) != n || len(newest) != len(oldest) {
			t.Fatalf("%+v: %d and %d", q, len(newest), len(oldest))
		}
		for i := range newest {
			if newest[i] != oldest[len(oldest)-1-i] {
				t.Errorf("%+v: %v, %v", q, newest, oldest)
				break
			}
		}
		// A cursor goes on with its own order only.
		page, err := x.List(context.Background(), Query{Limit: 4, Oldest: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.List(context.Background(), Query{Limit: 4, Cursor: page.NextCursor}); err == nil {
			t.Error("a cursor of the oldest goes on with the newest")
		}
	}
	// What is written during a walk comes at its end.
	page, err := x.List(context.Background(), Query{Limit: n, Oldest: true})
	if err != nil || page.NextCursor != "" {
		t.Fatalf("%v, %v", page.NextCursor, err)
	}
}
