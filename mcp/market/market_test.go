package market

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

func mustSearch(t *testing.T, c *Client, s Search) *Page {
	t.Helper()
	p, err := c.Search(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestContract54EverySampleHasItsRows(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(nil)
	first := mustSearch(t, c, Search{Limit: 3})
	for _, x := range []struct {
		sample        string
		s             Search
		rows, dropped int
		next          bool
	}{
		{"orderbook-page-1.json", Search{Limit: 3}, 3, 0, true},
		{"orderbook-page-2.json", Search{Limit: 3, Cursor: first.NextCursor}, 3, 0, false},
		{"orderbook-xmr.json", Search{Asset: "XMR"}, 3, 0, false},
		{"orderbook-usdt-sell.json", Search{Asset: "USDT", Side: "sell"}, 2, 0, false},
		{"orderbook-none.json", Search{Asset: "ZEC"}, 0, 0, false},
		{"orderbook-hostile.json", Search{Asset: "DOGE"}, 5, 4, false},
		{"orderbook-legacy-wrapper.json", Search{Asset: "LTC"}, 1, 0, false},
	} {
		t.Run(x.sample, func(t *testing.T) {
			p := mustSearch(t, c, x.s)
			if len(p.Rows) != x.rows || p.Dropped != x.dropped || (p.NextCursor != "") != x.next || p.LeftOut != 0 {
				t.Errorf("%d rows, %d dropped, cursor %q", len(p.Rows), p.Dropped, p.NextCursor)
			}
		})
	}
	for _, x := range []struct {
		sample       string
		offline      bool
		rows, hidden int
	}{{"instances.json", false, 3, 3}, {"instances.json", true, 6, 0}} {
		d, err := c.Instances(t.Context(), "", x.offline)
		if err != nil || len(d.Instances) != x.rows || d.Hidden != x.hidden || d.Dropped != 0 {
			t.Errorf("%s: %+v, %v", x.sample, d, err)
		}
	}
	m, err := c.PaymentMethods(t.Context(), "")
	if err != nil || len(m.Methods) != len(common)+2 || m.Dropped != 0 {
		t.Errorf("payment-methods.json: %+v, %v", m, err)
	}
	for _, x := range []struct{ path, sample string }{{"/v1/instance/payment-methods", "payment-methods-none.json"}, {"/v1/instance", "instance-bare.json"}, {"/v1/instances", "instances-good.json"}} {
		f.says(x.path, string(sample(t, x.sample)))
	}
	c, _ = f.client(nil)
	if m, err := c.PaymentMethods(t.Context(), ""); err != nil || len(m.Methods) != len(common) {
		t.Errorf("payment-methods-none.json: %+v, %v", m, err)
	}
	if d, err := c.Describe(t.Context(), ""); err != nil || !d.Reachable || d.Name != "" || len(d.Available()) != len(Assets) {
		t.Errorf("instance-bare.json: %+v, %v", d, err)
	}
	if d, err := c.Instances(t.Context(), "", true); err != nil || len(d.Instances) != 1 {
		t.Errorf("instances-good.json: %+v, %v", d, err)
	}
}

func TestContract54ABodyWithoutAListIsAnErrorInEveryTool(t *testing.T) {
	f := newFake(t)
	c, clock := f.client(nil)
	ask := map[string]func() error{
		"/v1/orderbook":                func() error { _, err := c.Search(t.Context(), Search{}); return err },
		"/v1/orders/orchard.lane":      func() error { _, err := c.Listing(t.Context(), "", "orchard.lane", "a"); return err },
		"/v1/instances":                func() error { _, err := c.Instances(t.Context(), "", false); return err },
		"/v1/instance/payment-methods": func() error { _, err := c.PaymentMethods(t.Context(), ""); return err },
	}
	for path, ask := range ask {
		for _, body := range []string{`{}`, `{"results":[]}`, `{"Items":[]}`, `{"items":"none"}`, `null`, `[]`} {
			f.says(path, body)
			clock.add(time.Minute)
			if err := ask(); err == nil {
				t.Errorf("%s of %s is an answer", body, path)
			} else {
				refusedAs(t, err, errcode.Market)
			}
		}
		// Each of the names lists have had is read, in every tool.
		for _, name := range listNames {
			f.says(path, `{"`+name+`":[]}`)
			clock.add(time.Minute)
			if err := ask(); err != nil && !strings.HasPrefix(err.Error(), "E_LISTING_NOT_FOUND") {
				t.Errorf("%s of %s: %v", name, path, err)
			}
		}
	}
	f.says("/v1/orderbook", `{"rows":[1],"items":[]}`)
	clock.add(time.Minute)
	if p := mustSearch(t, c, Search{}); p.Dropped != 0 {
		t.Error("rows was read although items is there")
	}
}

func TestContract55PriceAndNetworkReachTheAgent(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(nil)
	p := mustSearch(t, c, Search{Asset: "USDT", Side: "sell"})
	got := map[string]string{}
	for _, r := range p.Rows {
		if r.PriceModel == nil {
			t.Fatalf("%+v", r)
		}
		got[r.Network] = r.PriceModel.Kind + " " + r.PriceModel.Price + r.PriceModel.Percent
	}
	if len(got) != 2 || got["trc20"] == "" || got["erc20"] == "" {
		t.Errorf("%v", got)
	}
	p = mustSearch(t, c, Search{Asset: "XMR"})
	for i, want := range []*PriceModel{{Kind: "spread", Percent: "2.5"}, {Kind: "tiered"}, {Kind: "fixed", Price: "45"}} {
		if diff := cmp.Diff(want, p.Rows[i].PriceModel); diff != "" {
			t.Errorf("row %d: %s", i, diff)
		}
	}
	if r := p.Rows[2]; r.Title != "Stoneware bowl set" || !slices.Equal(r.Accepted, []string{"XMR", "BTC"}) || *r.Trades != 0 {
		t.Errorf("goods: %+v", r)
	}
	// A network that the ticker is not on is none.
	f.says("/v1/orderbook", `{"items":[{"account":"abc","permlink":"a","asset":"USDT","side":"buy","asset_network":"base"},
		{"account":"abc","permlink":"b","asset":"USDT","side":"buy","asset_network":"bep20"},{"account":"abc","permlink":"c","asset":"BTC","side":"buy","asset_network":"erc20"}]}`)
	c, _ = f.client(nil)
	p = mustSearch(t, c, Search{})
	if p.Rows[0].Network != "" || p.Rows[1].Network != "bep20" || p.Rows[2].Network != "" || fmt.Sprint(p.Rows[0].Changed) != "[asset_network]" {
		t.Errorf("%+v %+v %+v", p.Rows[0], p.Rows[1], p.Rows[2])
	}
}

func TestContract56SideIsWhatThePosterWants(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(nil)
	for _, r := range mustSearch(t, c, Search{Asset: "USDT", Side: "sell"}).Rows {
		if r.Side != "sell" || r.UserSide() != "buy" {
			t.Errorf("%+v", r)
		}
	}
	if got := f.requests()[0].URL.Query().Get("side"); got != "sell" {
		t.Errorf("the instance was asked for side %s", got)
	}
	for _, r := range mustSearch(t, c, Search{Asset: "XMR"}).Rows {
		want := map[string]string{"xmr-sell-eur-0007": "buy", "xmr-buy-eur-0009": "sell", "barter-stoneware-0003": "buy"}[r.Permlink]
		if r.UserSide() != want {
			t.Errorf("%s %s: a user would %s, not %s", r.Asset, r.Side, r.UserSide(), want)
		}
	}
}

func TestContract57AListingIsFoundOnItsPageAndSaysWhetherItIsGood(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(nil)
	for _, x := range []struct {
		account, permlink string
		listed            bool
		status            string
	}{
		{"orchard.lane", "xmr-sell-eur-0007", true, "live"},
		{"orchard.lane", "ltc-sell-eur-0006", false, "live"}, // its fee is not confirmed
		{"orchard.lane", "xmr-sell-eur-0005", false, "completed"},
		{"orchard.lane", "btc-sell-eur-0004", false, "cancelled"},
		{"busyshop", "btc-sell-cad-0060", true, "live"},
		{"busyshop", "btc-sell-cad-0057", true, "live"},  // on page two
		{"busyshop", "btc-sell-cad-0055", false, "live"}, // has expired
	} {
		if x.account == "orchard.lane" {
			f.says("/v1/orders/orchard.lane", string(sample(t, "orders-account-mixed.json")))
		}
		found, err := c.Listing(t.Context(), "", x.account, x.permlink)
		if err != nil {
			t.Errorf("%s: %v", x.permlink, err)
			continue
		}
		if found.Row.Listed != x.listed || found.Row.Status != x.status || found.Row.Permlink != x.permlink {
			t.Errorf("%s: %+v", x.permlink, found.Row)
		}
		if want := f.URL + "/?then=%2F%40" + x.account + "%2F" + x.permlink; found.Deeplink != want {
			t.Errorf("%s, want %s", found.Deeplink, want)
		}
	}
	_, err := c.Listing(t.Context(), "", "busyshop", "btc-sell-cad-0001")
	refusedAs(t, err, errcode.ListingNotFound, "btc-sell-cad-0001", "busyshop")
	for _, r := range f.requests() {
		if strings.HasPrefix(r.URL.Path, "/v1/orders/") && r.URL.Query().Get("limit") != "100" {
			t.Errorf("asked %s", r.URL)
		}
	}
	for _, x := range [][2]string{{"../admin", "a"}, {"Busyshop", "a"}, {"ab", "a"}, {"busyshop", "a/b"}, {"busyshop", "-a"}, {"busyshop", ""}, {"busyshop", strings.Repeat("a", 33)}, {"busyshop", "a--b"}} {
		_, err := c.Listing(t.Context(), "", x[0], x[1])
		refusedAs(t, err, errcode.Input)
	}
}

func TestTheListOfAnAccountIsReadTenPagesFarAndNoCircle(t *testing.T) {
	f := newFake(t)
	pages := 0
	f.on("/v1/orders/busyshop", func(w http.ResponseWriter, _ *http.Request) {
		pages++
		fmt.Fprintf(w, `{"items":[{"account":"mallory","permlink":"wanted","asset":"BTC","side":"buy","status":"live","fee_status":"verified"}],"next_cursor":"c%d"}`, pages)
	})
	c, clock := f.client(nil)
	_, err := c.Listing(t.Context(), "", "busyshop", "wanted")
	refusedAs(t, err, errcode.ListingNotFound) // what is another account's is not this one's
	if pages != maxPages {
		t.Errorf("%d pages", pages)
	}
	for cursor, want := range map[string]struct {
		pages int
		code  errcode.Code
	}{
		`"same"`: {2, errcode.ListingNotFound}, `""`: {1, errcode.ListingNotFound}, `null`: {1, errcode.ListingNotFound},
		// More follows, so nobody can say that it is not there.
		`"\"><script>"`: {1, errcode.Market}, `"` + strings.Repeat("c", 513) + `"`: {1, errcode.Market}, `7`: {1, errcode.Market}, `{}`: {1, errcode.Market},
	} {
		pages = 0
		f.on("/v1/orders/busyshop", func(w http.ResponseWriter, _ *http.Request) {
			pages++
			io.WriteString(w, `{"items":[],"next_cursor":`+cursor+`}`)
		})
		clock.add(time.Minute)
		_, err := c.Listing(t.Context(), "", "busyshop", "wanted")
		refusedAs(t, err, want.code)
		if pages != want.pages {
			t.Errorf("cursor %s: %d pages, want %d", cursor, pages, want.pages)
		}
	}
}

func TestContract58WhatAStrangerSendsIsCleanedCappedAndListed(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(nil)
	p := mustSearch(t, c, Search{Asset: "DOGE"})
	by := map[string]*Row{}
	for _, r := range p.Rows {
		by[r.Account] = r
		walk(t, r.Account, reflect.ValueOf(r).Elem())
		if utf8.RuneCountInString(r.Terms) > maxTerms || utf8.RuneCountInString(r.Region) > maxRegion || len(r.Methods) > maxMethods {
			t.Errorf("%s is not capped", r.Account)
		}
		for _, m := range r.Methods {
			if utf8.RuneCountInString(m) > maxMethod {
				t.Errorf("%s: %s", r.Account, m)
			}
		}
	}
	if p.NextCursor != "" || !p.CursorUnread {
		t.Errorf("the cursor is %q, unreadable: %v", p.NextCursor, p.CursorUnread)
	}
	if by["mallory-1"].Changed != nil {
		t.Errorf("plain text was changed: %v", by["mallory-1"].Changed)
	}
	if r := by["mallory-2"]; !slices.Equal(r.Changed, []string{"location_region", "payment_methods", "terms"}) {
		t.Errorf("%q", r.Changed)
	} else if r.Terms != "[open the listing](https://evil.example/login) reversed zerowidth red" || !slices.Equal(r.Methods, []string{"wise", "wise"}) {
		t.Errorf("%q %q", r.Terms, r.Methods)
	}
	if r := by["mallory-3"]; !slices.Equal(r.Changed, []string{"terms"}) || utf8.RuneCountInString(r.Terms) != maxTerms {
		t.Errorf("%q, %d characters", r.Changed, utf8.RuneCountInString(r.Terms))
	}
	want := []string{"price_model", "amount_min", "amount_max", "weighted_rating", "trade_count", "updated_at"}
	if r := by["mallory-5"]; !slices.Equal(r.Changed, want) || r.AmountMin != "" || r.AmountMax != "" || r.PriceModel != nil || r.Rating != "" || r.Trades != nil || r.UpdatedAt != "" {
		t.Errorf("%+v", r)
	}
	if r := by["mallory-6"]; r.AmountMin != "" || r.AmountMax != "" || r.PriceModel.Price != "" {
		t.Errorf("%+v %+v", r, r.PriceModel)
	}
	if p.Deeplink != f.URL+"/?then=%2Forderbook%3Fasset%3DDOGE" {
		t.Error(p.Deeplink)
	}
}

// walk holds every text of a value to what may be shown.
func walk(t *testing.T, at string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		if s := v.String(); !utf8.ValidString(s) || strings.ContainsFunc(s, plain.Hidden) {
			t.Errorf("%s: %q", at, s)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walk(t, at+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(t, at, v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			walk(t, at, v.Elem())
		}
	}
}

func TestAnOlderRowIsReadAsItIsMeant(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(nil)
	r := mustSearch(t, c, Search{Asset: "LTC"}).Rows[0]
	if r.Price != "151.2" || r.AmountMin != "0.5" || r.AmountMax != "4" || !slices.Equal(r.Methods, []string{"cash_in_person", "zelle"}) || r.Changed != nil || !r.Listed {
		t.Errorf("%+v", r)
	}
}

func TestOnlyTermsAreLaidOutWithBreaks(t *testing.T) {
	f := newFake(t)
	f.says("/v1/orderbook", `{"items":[{"account":"abc","permlink":"a","asset":"BTC","side":"buy","terms":"one\r\ntwo\n- three\tfour"},
		{"account":"abc","permlink":"b","asset":"BTC","side":"buy","terms":"one\u2028two","location_region":"Rome\nIT"}]}`)
	c, _ := f.client(nil)
	rows := mustSearch(t, c, Search{}).Rows
	if rows[0].Terms != "one two - three four" || rows[0].Changed != nil {
		t.Errorf("%+v", rows[0])
	}
	if rows[1].Region != "Rome IT" || !slices.Equal(rows[1].Changed, []string{"location_region", "terms"}) {
		t.Errorf("%+v", rows[1])
	}
}

func TestNumbersAreExactOrNone(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "-0": "0", "0.0": "0", "50": "50", "1.10": "1.1", "4.780": "4.78", "1e3": "1000", "1.5e2": "150", "15e-1": "1.5", "1E+2": "100", "-2.5": "-2.5",
		"100e-2": "1", "0.000000000000000001": "0.000000000000000001", "1000000000000": "1000000000000", "9007199254740993": "9007199254740993", "0.1e1": "1", "0.00100e2": "0.1",
		"1e-18": "0.000000000000000001", "1234567890123456.123456789012345678": "1234567890123456.123456789012345678",
		"1e-19": "", "1e17": "", "12345678901234567": "", "1e999": "", "1e-999": "", "1e1000": "", "": "", "-": "", "+1": "", ".5": "", "1.": "", "01": "", "1,5": "",
		"NaN": "", "Infinity": "", "0x10": "", "1 ": "", "１": "", "1_000": "", strings.Repeat("1", 65): "", "0." + strings.Repeat("0", 63): "",
	} {
		got, ok := decimal(text)
		if got != want || ok != (want != "") {
			t.Errorf("%q is %q, %v, want %q", text, got, ok, want)
		}
	}
}

func TestTextsThatCannotBeOffersAreDropped(t *testing.T) {
	good := map[string]any{"account": "abc", "permlink": "a-1", "asset": "BTC", "side": "sell"}
	for name, change := range map[string]map[string]any{
		"no account": {"account": nil}, "an account of another alphabet": {"account": "Abc"}, "a long account": {"account": strings.Repeat("a", 17)},
		"an account with a path": {"account": "../admin"}, "a permlink with a path": {"permlink": "a/b"}, "a long permlink": {"permlink": strings.Repeat("a", 33)},
		"no side": {"side": ""}, "a side of its own": {"side": "both"}, "an asset in small letters": {"asset": "btc"}, "a number for an asset": {"asset": 7}, "a bidi account": {"account": "abc\u202e"},
	} {
		row := map[string]any{}
		for k, v := range good {
			row[k] = v
		}
		for k, v := range change {
			row[k] = v
		}
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		var doc jsjson.Doc
		if err := doc.Parse(text); err != nil {
			t.Fatal(err)
		}
		if r, ok := readRow(doc.Root(), publicBook); ok {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestFiltersAreSentAsTheyAreMeant(t *testing.T) {
	f := newFake(t)
	f.says("/v1/orderbook", `{"items":[]}`)
	c, _ := f.client(nil)
	p := mustSearch(t, c, Search{
		Asset: "BTC", Side: "buy", Fiat: "EUR,USD", Region: "Cafe\u0301 & co", Methods: " Wise ,,CASH_IN_PERSON," + strings.Repeat("x", 33), MinTrades: 4, Sort: "rating", Limit: 7, Cursor: "a+/=",
	})
	want := map[string]string{
		"asset": "BTC", "side": "buy", "fiat_currency": "EUR,USD", "location_region": "Café & co", "payment_methods": "wise,cash_in_person", "min_trades": "4", "sort": "rating", "limit": "7", "cursor": "a+/=",
	}
	got := map[string]string{}
	for name := range f.requests()[0].URL.Query() {
		got[name] = f.requests()[0].URL.Query().Get(name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if want := f.URL + "/?then=%2Forderbook%3Fasset%3DBTC%26side%3Dbuy%26fiat%3DEUR%252CUSD%26region%3DCaf%25C3%25A9%2B%2526%2Bco%26pm%3Dwise%252Ccash_in_person"; p.Deeplink != want {
		t.Errorf("%s\nwant %s", p.Deeplink, want)
	}
	_, err := c.Search(t.Context(), Search{Methods: " , " + strings.Repeat("x", 33)})
	refusedAs(t, err, errcode.Input, "names no method")
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestAPageIsNoLongerThanAsked(t *testing.T) {
	f := newFake(t)
	var rows []string
	for i := range 150 {
		rows = append(rows, fmt.Sprintf(`{"account":"abc","permlink":"p-%d","asset":"BTC","side":"buy"}`, i))
	}
	f.says("/v1/orderbook", `{"items":[`+strings.Join(rows, ",")+`],"next_cursor":"c"}`)
	c, _ := f.client(nil)
	if p := mustSearch(t, c, Search{Limit: 5}); len(p.Rows) != 5 || p.LeftOut != 145 {
		t.Errorf("%d rows, %d left out", len(p.Rows), p.LeftOut)
	}
	if p := mustSearch(t, c, Search{}); len(p.Rows) != 100 || p.LeftOut != 50 {
		t.Errorf("%d rows, %d left out", len(p.Rows), p.LeftOut)
	}
}

func TestWhatWasNotAskedForPushesNothingOut(t *testing.T) {
	f, liar := newFake(t), newFake(t)
	c, _ := newClient(t, func(o *Options) {
		o.Instances, o.AllowPrivate, o.AllowHTTP = []string{f.URL, liar.URL}, true, true
	})
	honest := mustSearch(t, c, Search{Asset: "XMR"}).Rows[0].Ref
	row := func(account string, i int) string {
		return fmt.Sprintf(`{"account":%q,"permlink":"p-%d","asset":"BTC","side":"buy","status":"live","fee_status":"verified"}`, account, i)
	}
	var rows []string
	for i := range 2 * keptRefs {
		rows = append(rows, row("abc", i))
	}
	body := `{"items":[` + strings.Join(rows, ",") + `]}`
	liar.says("/v1/orderbook", body)
	liar.says("/v1/orders/abc", body)
	p := mustSearch(t, c, Search{Instance: liar.URL, Limit: 3})
	if len(p.Rows) != 3 || p.LeftOut != 2*keptRefs-3 || c.Recall(p.Rows[0].Ref) == nil {
		t.Errorf("%d rows, %d left out, the first is remembered: %v", len(p.Rows), p.LeftOut, c.Recall(p.Rows[0].Ref) != nil)
	}
	last, err := c.Listing(t.Context(), liar.URL, "abc", fmt.Sprintf("p-%d", 2*keptRefs-1))
	if err != nil || c.Recall(last.Row.Ref) == nil {
		t.Errorf("%+v, %v", last, err)
	}
	if c.Recall(honest) == nil {
		t.Error("an instance that sends more than it was asked for makes the offers of another unknown")
	}
}

func TestOfTwoReadingsThatContradictEachOtherTheNewestCounts(t *testing.T) {
	const row = `{"account":"abc","permlink":"a","asset":"USDT","asset_network":"trc20","side":"buy","fiat_currency":"EUR","amount_min":5,"amount_max":9,"price_model":{"kind":"fixed","price":1},` +
		`"status":"live","fee_status":"verified","expires_at":"2027-01-01T00:00:00Z","trade_count":3,"terms":"x"}`
	book := func(rows ...string) string { return `{"items":[` + strings.Join(rows, ",") + `]}` }
	for name, x := range map[string]struct {
		old, new string
		stale    bool
	}{
		"it was cancelled":             {`"live"`, `"cancelled"`, true},
		"its fee was taken back":       {`"verified"`, `"pending_external"`, true},
		"it has expired":               {"2027", "2025", true},
		"its end is not said any more": {`"2027-01-01T00:00:00Z"`, `null`, true},
		"another currency":             {`"EUR"`, `"USD"`, true},
		"the least is more":            {`_min":5`, `_min":6`, true},
		"the most is less":             {`_max":9`, `_max":8`, true},
		"another price":                {`"price":1`, `"price":2`, true},
		"another side":                 {`"buy"`, `"sell"`, true},
		"another asset":                {`"USDT"`, `"USDC"`, true},
		"another network":              {`"trc20"`, `"erc20"`, true},
		"the network is not said":      {`"asset_network":"trc20",`, ``, false}, // lists of accounts leave it out
		"other words":                  {`"x"`, `"y"`, false},
		"one more trade":               {`:3,`, `:4,`, false},
		"another offer":                {`"a"`, `"b"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c, clock := f.client(nil)
			f.says("/v1/orderbook", book(row))
			before := mustSearch(t, c, Search{}).Rows[0].Ref
			changed := strings.Replace(row, x.old, x.new, 1)
			f.says("/v1/orders/abc", book(changed))
			clock.add(time.Second)
			permlink := "a"
			if x.new == `"b"` {
				permlink = "b"
			}
			found, err := c.Listing(t.Context(), "", "abc", permlink)
			if err != nil {
				t.Fatal(err)
			}
			if stale := c.Recall(before) == nil; stale != x.stale || c.Recall(found.Row.Ref) == nil {
				t.Errorf("what was read first is stale: %v, what was read last: %v", stale, c.Recall(found.Row.Ref) == nil)
			}
			// A reply that was kept is older, whenever it is shown again.
			again := mustSearch(t, c, Search{}).Rows[0].Ref
			if stale := c.Recall(again) == nil; again != before || stale != x.stale || c.Recall(found.Row.Ref) == nil {
				t.Errorf("shown again from what is kept: stale %v", stale)
			}
		})
	}
	t.Run("both on one page", func(t *testing.T) {
		f := newFake(t)
		c, _ := f.client(nil)
		f.says("/v1/orderbook", book(row, strings.Replace(row, `_max":9`, `_max":900`, 1)))
		rows := mustSearch(t, c, Search{}).Rows
		if len(rows) != 2 || c.Recall(rows[0].Ref) != nil || c.Recall(rows[1].Ref) == nil {
			t.Errorf("%d rows; more than one of them can be paid for", len(rows))
		}
	})
	t.Run("what another instance says contradicts nothing", func(t *testing.T) {
		f, liar := newFake(t), newFake(t)
		c, _ := newClient(t, func(o *Options) {
			o.Instances, o.AllowPrivate, o.AllowHTTP = []string{f.URL, liar.URL}, true, true
		})
		f.says("/v1/orderbook", book(row))
		liar.says("/v1/orderbook", book(strings.Replace(row, `"live"`, `"cancelled"`, 1)))
		ref := mustSearch(t, c, Search{}).Rows[0].Ref
		mustSearch(t, c, Search{Instance: liar.URL})
		if c.Recall(ref) == nil {
			t.Error("an instance makes the offers of another stale")
		}
	})
}

func TestInstantsAreOfThisTimeOrNone(t *testing.T) {
	for text, want := range map[string]string{
		"1970-01-01T00:00:00Z": "1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z": "9999-12-31T23:59:59.999Z", "2026-11-29T13:00:00+01:00": "2026-11-29T12:00:00.000Z",
		"0001-01-01T00:00:00Z": "", "0000-01-01T00:00:00+23:59": "", "1969-12-31T23:59:59Z": "", "1970-01-01T00:00:00+01:00": "", "9999-12-31T23:59:59-23:59": "", "10000-01-01T00:00:00Z": "",
	} {
		var doc jsjson.Doc
		if err := doc.Parse([]byte(`{"account":"abc","permlink":"a","asset":"BTC","side":"buy","status":"live","expires_at":"` + text + `"}`)); err != nil {
			t.Fatal(err)
		}
		r, ok := readRow(doc.Root(), publicBook)
		if !ok {
			t.Fatal(text)
		}
		r.place(noon)
		l, err := r.seen("https://market.example", noon)
		if err != nil {
			t.Fatal(err)
		}
		if r.ExpiresAt != want || slices.Contains(r.Changed, "expires_at") != (want == "") || want == "" && (r.Listed || !l.ExpiryUnread) {
			t.Errorf("%s is %q, changed %v, listed %v, unread %v", text, r.ExpiresAt, r.Changed, r.Listed, l.ExpiryUnread)
		}
	}
}

// What an instance sends is gone through once, else four megabytes of it keep a
// machine busy long after the time for an answer is over.
func TestLongListsOfMethodsAreNotComparedEachWithEach(t *testing.T) {
	const n = 30_000
	f := newFake(t)
	var additions, disabled []string
	for i := range n {
		additions = append(additions, fmt.Sprintf(`{"key":"m%d"}`, i))
		disabled = append(disabled, fmt.Sprintf(`"@instance:n%d"`, i))
	}
	f.says("/v1/instance/payment-methods", `{"additions":[`+strings.Join(additions, ",")+`]}`)
	f.says("/v1/instance", `{"disabled_payment_methods":[`+strings.Join(append(disabled, `"m7"`), ",")+`]}`)
	c, _ := f.client(nil)
	began := time.Now()
	m, err := c.PaymentMethods(t.Context(), "")
	if err != nil || len(m.Methods) != len(common)+n || !m.Methods[len(common)+7].Disabled || m.Methods[len(common)+8].Disabled {
		t.Fatalf("%d methods, %v", len(m.Methods), err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestTheDirectoryIsData(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(nil)
	d, err := c.Instances(t.Context(), "", true)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]*Instance{}
	for _, i := range d.Instances {
		by[i.Status] = i
	}
	if i := by["good"]; i.Origin != "https://market-a.example" || i.Operator != "alpha" || i.OperatorName != "Alpha Market" || i.Contact != "https://market-a.example/contact" ||
		*i.LagSeconds != 6 || i.ProbedAt != "2026-11-29T09:00:00.000Z" || !strings.HasSuffix(i.Tor, ".onion") || i.Changed != nil {
		t.Errorf("%+v", i)
	}
	if i := by["quiet"]; i.I2PName != "bravo-fixture.i2p" {
		t.Errorf("%+v", i)
	}
	if i := by["mismatch"]; i.Contact != "" || !slices.Equal(i.Changed, []string{"contact_url"}) {
		t.Errorf("a script is a contact: %+v", i)
	}
	for origin, good := range map[string]bool{
		"https://a.example": true, "http://a.onion": true, "ftp://a.example": false, "javascript:alert(1)": false, "https://u:p@a.example": false, "https://a.example/\u202e": false,
		"https://a.example/" + strings.Repeat("a", 300): false, "a.example": false, "": false, "https://a.example/<b>": false,
	} {
		text, _ := json.Marshal(map[string]any{"instances": []any{map[string]any{"origin": origin, "status": "good"}}})
		f.says("/v1/instances", string(text))
		c, _ := f.client(nil)
		if d, err := c.Instances(t.Context(), "", false); err != nil || (len(d.Instances) == 1) != good || (d.Dropped == 1) == good {
			t.Errorf("%s: %+v, %v", origin, d, err)
		}
	}
	f.says("/v1/instances", `{"items":[{"origin":"https://a.example","last_probe_status":"good"},{"origin":"https://b.example","status":7},{"origin":"https://c.example","alt_networks":{"tor":"a b"}},4]}`)
	c, _ = f.client(nil)
	if d, err := c.Instances(t.Context(), "", false); err != nil || len(d.Instances) != 1 || d.Hidden != 2 || d.Dropped != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestTheCommonMethodsAreThoseOfTheContract(t *testing.T) {
	var slugs []string
	counts := map[string]int{}
	for _, m := range common {
		slugs = append(slugs, m.Slug)
		counts[m.Category]++
		if m.Name == "" || !slugForm.matches(m.Slug) || m.Own || m.Disabled {
			t.Errorf("%+v", m)
		}
	}
	slices.Sort(slugs)
	if len(slices.Compact(slugs)) != 58 {
		t.Errorf("%d methods", len(slugs))
	}
	if diff := cmp.Diff(map[string]int{"crypto": 16, "in_person": 3, "by_mail": 1, "online": 38}, counts); diff != "" {
		t.Error(diff)
	}
	for _, slug := range []string{"wise", "zelle", "pay_xmr", "cash_by_mail", "przelewy24"} {
		if !slices.Contains(slugs, slug) {
			t.Errorf("%s is missing", slug)
		}
	}
	f := newFake(t)
	c, _ := f.client(nil)
	m, err := c.PaymentMethods(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range m.Methods {
		if x.Disabled != (x.Slug == "klarna") || x.Own != strings.HasPrefix(x.Slug, "@instance:") {
			t.Errorf("%+v", x)
		}
	}
	f.on("/v1/instance", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	f.says("/v1/instance/payment-methods", `{"additions":[{"key":"@instance:a b","name":"x"},{"key":"mbway","name":"\u202eMB\u0007WAY","category":"Online"},{"slug":"older"},null]}`)
	c, _ = f.client(nil)
	m, err = c.PaymentMethods(t.Context(), "")
	if err != nil || !m.DisabledUnknown || m.Dropped != 2 || len(m.Methods) != 60 {
		t.Fatalf("%+v, %v", m, err)
	}
	if own := m.Methods[58]; own.Name != "MBWAY" || own.Category != "" {
		t.Errorf("%+v", own)
	}
}

func TestAnInstanceThatDoesNotAnswerIsSaidNotTo(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(nil)
	d, err := c.Describe(t.Context(), "")
	if err != nil || !d.Reachable || d.Name != "Alpha Market" || d.Contact != "https://market-a.example/contact" || !slices.Equal(d.DisabledAssets, []string{"USDT"}) {
		t.Errorf("%+v, %v", d, err)
	}
	if all := d.Available(); len(all) != len(Assets)-1 || slices.Contains(all, "USDT") {
		t.Errorf("%q", all)
	}
	if d.WebUI != f.URL+"/" || d.Documentation != f.URL+"/?then=%2Ffaq" || d.Origin != f.URL {
		t.Errorf("%+v", d)
	}
	f.Server.Close()
	c, _ = f.client(nil)
	d, err = c.Describe(t.Context(), "")
	if err != nil || d.Reachable || !strings.Contains(d.Why, "refuses connections") || d.Origin != f.URL {
		t.Errorf("%+v, %v", d, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Describe(ended, ""); err == nil {
		t.Error("a call that was ended is an answer")
	}
}

func TestAListingRefIsGoodForHalfAnHourAndAThousandOffers(t *testing.T) {
	f := newFake(t)
	c, clock := f.client(nil)
	page := mustSearch(t, c, Search{Asset: "USDT", Side: "sell"})
	ref := page.Rows[0].Ref
	l := c.Recall(ref)
	if l == nil {
		t.Fatal("an offer that was just shown is not known")
	}
	want := &guard.Listing{
		Digest: l.Digest, Instance: f.URL, Account: page.Rows[0].Account, Permlink: page.Rows[0].Permlink, Side: "sell", Asset: "USDT", Network: page.Rows[0].Network,
		Chain: networks["USDT"][page.Rows[0].Network], SeveralChains: true, Fiat: page.Rows[0].Fiat, AmountMin: page.Rows[0].AmountMin, AmountMax: page.Rows[0].AmountMax,
		Price: page.Rows[0].PriceModel.Price, Status: "live", FeeVerified: true, ExpiresAt: l.ExpiresAt, Trades: *page.Rows[0].Trades, SeenAt: noon,
	}
	if diff := cmp.Diff(want, l); diff != "" || len(l.Digest) != 64 || ref != "l-"+l.Digest[:40] || l.ExpiresAt.IsZero() {
		t.Errorf("%s\n%+v", diff, l)
	}
	// What is served again from what is kept is no younger for it.
	clock.add(freshFor - time.Second)
	mustSearch(t, c, Search{Asset: "USDT", Side: "sell"})
	clock.add(refLife - freshFor + time.Second)
	if c.Recall(ref) == nil {
		t.Error("it is forgotten too early")
	}
	clock.add(time.Nanosecond)
	if c.Recall(ref) != nil {
		t.Error("it is remembered too long")
	}
	// An offer that is unchanged has the same reference, at the same instance only.
	again := mustSearch(t, c, Search{Asset: "USDT", Side: "sell"}).Rows[0].Ref
	if again != ref || c.Recall(ref) == nil {
		t.Errorf("%s, then %s", ref, again)
	}
	other := newFake(t)
	d, _ := other.client(nil)
	if elsewhere := mustSearch(t, d, Search{Asset: "USDT", Side: "sell"}).Rows[0].Ref; elsewhere == ref {
		t.Error("two instances give the same reference")
	}
	if c.Recall("l-0") != nil || c.Recall("") != nil {
		t.Error("an unknown reference is known")
	}
	var rows []string
	for i := range 100 {
		rows = append(rows, fmt.Sprintf(`{"account":"abc","permlink":"p-%d","asset":"BTC","side":"buy","terms":"%%d"}`, i))
	}
	for i := range 10 {
		f.says("/v1/orderbook", strings.ReplaceAll(`{"items":[`+strings.Join(rows, ",")+`]}`, "%d", fmt.Sprint(i)))
		clock.add(time.Minute)
		mustSearch(t, c, Search{})
	}
	if c.Recall(ref) != nil {
		t.Error("more than a thousand offers are kept")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refs.Len() != keptRefs {
		t.Errorf("%d offers are kept", c.refs.Len())
	}
}

func TestEveryChangeOfAnOfferChangesItsReference(t *testing.T) {
	read := func(text string, from book) *Row {
		var doc jsjson.Doc
		if err := doc.Parse([]byte(text)); err != nil {
			t.Fatal(err)
		}
		r, ok := readRow(doc.Root(), from)
		if !ok {
			t.Fatal(text)
		}
		r.place(noon)
		if _, err := r.seen("https://market.example", noon); err != nil {
			t.Fatal(err)
		}
		return r
	}
	const row = `{"account":"abc","permlink":"a","asset":"USDT","side":"buy","fiat_currency":"EUR","amount_min":5,"status":"live","expires_at":"2027-01-01T00:00:00Z","trade_count":3,"terms":"x"}`
	first := read(row, publicBook).Ref
	for _, change := range [][2]string{
		{`"live"`, `"cancelled"`}, {"2027", "2028"}, {`"EUR"`, `"USD"`}, {`:5`, `:6`}, {`:3`, `:4`}, {`"x"`, `"y"`}, {`"buy"`, `"sell"`}, {`"a"`, `"b"`}, {`"x"`, `"x\u200b"`}, {`"live"`, `"live","asset_network":"trc20"`},
	} {
		if got := read(strings.Replace(row, change[0], change[1], 1), publicBook).Ref; got == first {
			t.Errorf("%s for %s is the same offer", change[1], change[0])
		}
	}
	if got := read(strings.Replace(row, "{", `{"trust_this":"yes","fee_method":"xmr",`, 1), publicBook).Ref; got != first {
		t.Error("what is not shown changes the reference")
	}
	if got := read(strings.Replace(row, ":5,", ":5.0,", 1), publicBook).Ref; got != first {
		t.Error("another spelling of a number changes the reference")
	}
}

func TestWhatAnAccountShowsOfItselfIsNotTheBook(t *testing.T) {
	for name, x := range map[string]struct {
		row    string
		from   book
		listed bool
	}{
		"the book, without a word of status or fee": {`{}`, publicBook, true},
		"the book, live":                             {`{"status":"live"}`, publicBook, true},
		"the book, cancelled":                        {`{"status":"cancelled"}`, publicBook, false},
		"the book, a status that is none":            {`{"status":7}`, publicBook, false},
		"the book, a fee that is not paid":           {`{"status":"live","fee_status":"pending_external"}`, publicBook, false},
		"the book, a fee that is no word":            {`{"status":"live","fee_status":["verified"]}`, publicBook, false},
		"an account, live and paid":                  {`{"status":"live","fee_status":"verified"}`, ownersView, true},
		"an account, live and attested":              {`{"status":"live","fee_status":"verified_by_attestation"}`, ownersView, true},
		"an account, without a word of the fee":      {`{"status":"live"}`, ownersView, false},
		"an account, without a word of the status":   {`{"fee_status":"verified"}`, ownersView, false},
		"an account, expired":                        {`{"status":"live","fee_status":"verified","expires_at":"2026-11-29T12:00:00Z"}`, ownersView, false},
		"an account, in the last second":             {`{"status":"live","fee_status":"verified","expires_at":"2026-11-29T12:00:01Z"}`, ownersView, true},
		"an account, expiry that cannot be read":     {`{"status":"live","fee_status":"verified","expires_at":"soon"}`, ownersView, false},
		"an account, expiry in another zone, passed": {`{"status":"live","fee_status":"verified","expires_at":"2026-11-29T13:00:00+01:00"}`, ownersView, false},
	} {
		var doc jsjson.Doc
		if err := doc.Parse([]byte(`{"account":"abc","permlink":"a","asset":"BTC","side":"buy"` + strings.Replace(strings.TrimPrefix(x.row, "{"), `"`, `,"`, 1))); err != nil {
			t.Fatal(err)
		}
		r, ok := readRow(doc.Root(), x.from)
		if !ok {
			t.Fatal(name)
		}
		r.place(noon)
		if r.Listed != x.listed {
			t.Errorf("%s: listed %v", name, r.Listed)
		}
		l, err := r.seen("https://market.example", noon)
		if err != nil {
			t.Fatal(err)
		}
		if payable := l.Status == "live" && l.FeeVerified && !l.ExpiryUnread && (l.ExpiresAt.IsZero() || l.ExpiresAt.After(noon)); payable != x.listed {
			t.Errorf("%s: the guard would take it for %v", name, payable)
		}
	}
}

func FuzzReadRow(f *testing.F) {
	f.Add([]byte(`{"account":"abc","permlink":"a","asset":"USDT","side":"buy","asset_network":"trc20","price_model":{"kind":"fixed","price":1e0},"payment_methods":["a"],"terms":"x"}`))
	f.Add([]byte(`{"account":"abc","permlink":"a","asset":"BTC","side":"sell","amount_min":"1","amount_max":1E400,"payment_methods":"a,b","accepted_assets":[1,"XMR"],"expires_at":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var doc jsjson.Doc
		if doc.Parse(text) != nil {
			return
		}
		for _, from := range []book{publicBook, ownersView} {
			r, ok := readRow(doc.Root(), from)
			if !ok {
				continue
			}
			walk(t, "row", reflect.ValueOf(r).Elem())
			r.place(noon)
			if _, err := r.seen("https://market.example", noon); err != nil {
				t.Fatalf("no reference: %v", err)
			}
			if utf8.RuneCountInString(r.Terms) > maxTerms || len(r.Methods) > maxMethods || len(r.Accepted) > maxAccepted {
				t.Fatalf("%+v", r)
			}
		}
	})
}
