package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp/market"
)

var _ Market = (*market.Client)(nil)

// stand is an instance on a real socket that serves testdata/market, and what a test
// puts in its place.
type stand struct {
	*httptest.Server
	t   testing.TB
	mu  sync.Mutex
	own map[string]string // bodies by path
	got []string          // what was asked
}

func newStand(t testing.TB) *stand {
	t.Helper()
	s := &stand{t: t, own: map[string]string{}}
	var routes []struct {
		Request struct {
			Path  string
			Query map[string]string
		}
		Response struct {
			Status int
			File   string
		}
	}
	if err := json.Unmarshal(s.sample("routes.json"), &routes); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.got = append(s.got, r.URL.String())
		own, mine := s.own[r.URL.Path]
		s.mu.Unlock()
		if mine {
			w.Write([]byte(own))
			return
		}
		query := map[string]string{}
		for name := range r.URL.Query() {
			query[name] = r.URL.Query().Get(name)
		}
		for _, x := range routes {
			if x.Request.Path == r.URL.Path && reflect.DeepEqual(x.Request.Query, query) {
				w.WriteHeader(x.Response.Status)
				w.Write(s.sample(x.Response.File))
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(s.Server.Close)
	return s
}

func (s *stand) sample(name string) []byte {
	body, err := os.ReadFile(filepath.Join("..", "testdata", "market", name))
	if err != nil {
		s.t.Fatal(err)
	}
	return body
}

func (s *stand) says(path, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[path] = body
}

// marketAt is a server of the toolset market alone that asks an instance.
func marketAt(t testing.TB, urls ...string) *service {
	t.Helper()
	c := clientOf(t, urls...)
	s, err := build(&fake{}, Options{Market: c, Toolsets: []string{"market"}}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func clientOf(t testing.TB, urls ...string) *market.Client {
	t.Helper()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	c, err := market.New(market.Options{Instances: urls, AllowPrivate: true, AllowHTTP: true, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// members asks a tool and reads its answer, which its text must say too.
func members(t *testing.T, s *service, tool, arguments string) map[string]any {
	t.Helper()
	r, isError := askOf(t, s, tool, arguments)
	if isError {
		t.Fatalf("%s: %s", tool, r.Content[0].Text)
	}
	var structured, text map[string]any
	if err := json.Unmarshal(r.Structured, &structured); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(r.Content[0].Text), &text); err != nil {
		t.Fatalf("the text is not JSON: %v", err)
	}
	if diff := cmp.Diff(structured, text); diff != "" {
		t.Errorf("text and structured content differ: %s", diff)
	}
	return structured
}

func rowsOf(t *testing.T, answer map[string]any) (all []map[string]any) {
	t.Helper()
	for _, r := range answer["rows"].([]any) {
		all = append(all, r.(map[string]any))
	}
	return all
}

var marketToolNames = []string{"morphit_describe", "morphit_get_listing", "morphit_list_instances", "morphit_list_payment_methods", "morphit_search_orders"}

func TestContract1To8TheSurface(t *testing.T) {
	st := newStand(t)
	s := marketAt(t, st.URL)
	t.Run("1: tools/list has exactly the five names", func(t *testing.T) {
		c := connectTo(t, t.Context(), s, 0, shutdown)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		c.in.Close()
		var list struct {
			Tools []struct {
				Name        string
				InputSchema map[string]any
				Annotations map[string]any
			}
		}
		result := c.must().Result
		if err := json.Unmarshal(result, &list); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			t.Run("2: "+tool.Name+" takes an object and no unknown member", func(t *testing.T) {
				if tool.InputSchema["type"] != "object" || tool.InputSchema["additionalProperties"] != false {
					t.Errorf("%v", tool.InputSchema)
				}
			})
			if a := tool.Annotations; a["readOnlyHint"] != true || a["openWorldHint"] != true || a["destructiveHint"] != false || a["idempotentHint"] != true {
				t.Errorf("%s: %v", tool.Name, a)
			}
		}
		slices.Sort(names)
		if !slices.Equal(names, marketToolNames) {
			t.Errorf("%q", names)
		}
		sameAsRecorded(t, "testdata/tools_list_market.json", result)
	})
	t.Run("3: a tool nobody has is an error the client sees", func(t *testing.T) {
		c := connectTo(t, t.Context(), s, 0, shutdown)
		c.send(call(1, "morphit_buy", `{}`))
		c.in.Close()
		if m := c.must(); m.Error == nil || m.Error.Message == "" {
			t.Errorf("%+v", m)
		}
	})
	t.Run("4: an instance that refuses connections is an error with a text of use", func(t *testing.T) {
		gone := newStand(t)
		gone.Server.Close()
		r, isError := askOf(t, marketAt(t, gone.URL), "morphit_search_orders", `{}`)
		if want := "E_MARKET: ask the instance " + gone.URL + ": it refuses connections. try: call again later, or ask another instance"; !isError || r.Content[0].Text != want {
			t.Errorf("%v %+v", isError, r.Content)
		}
	})
	t.Run("5: describe holds the four fixed facts and the assets", func(t *testing.T) {
		d := members(t, s, "morphit_describe", `{}`)["morphit"].(map[string]any)
		if d["non_custodial"] != true || d["kyc_required"] != false || d["federated"] != true || d["on_chain"] != "Blurt" || len(d["supported_assets"].([]any)) != 17 {
			t.Errorf("%v", d)
		}
		if d["instance_reachable"] != true || d["instance_display_name"] != "Alpha Market" || d["instance_origin"] != st.URL || len(d["available_assets"].([]any)) != 16 {
			t.Errorf("%v", d)
		}
		gone := newStand(t)
		gone.Server.Close()
		d = members(t, marketAt(t, gone.URL), "morphit_describe", `{}`)["morphit"].(map[string]any)
		if d["instance_reachable"] != false || d["instance_disabled_assets"] != nil || d["non_custodial"] != true || d["instance_unreachable_because"] == nil {
			t.Errorf("unreachable: %v", d)
		}
	})
	t.Run("6: a search keeps what is public and nothing else", func(t *testing.T) {
		answer := members(t, s, "morphit_search_orders", `{"asset":"XMR"}`)
		rows := rowsOf(t, answer)
		if len(rows) != 3 || rows[0]["account"] != "orchard.lane" || rows[0]["fee_method"] != nil || rows[0]["posting_pubkey"] != nil || answer["deeplink"] == nil {
			t.Errorf("%v", answer)
		}
	})
	t.Run("7: an asset outside the list is refused", func(t *testing.T) {
		r, isError := askOf(t, s, "morphit_search_orders", `{"asset":"SHIB"}`)
		if !isError || !strings.HasPrefix(r.Content[0].Text, `E_INPUT: "asset" is none of the values it can have. try: one of BTC, XMR`) {
			t.Errorf("%+v", r.Content)
		}
	})
	t.Run("8: the deeplink is exact, and the same in the hand-off", func(t *testing.T) {
		answer := members(t, s, "morphit_search_orders", `{"asset":"XMR"}`)
		want := st.URL + "/?then=%2Forderbook%3Fasset%3DXMR"
		handoff := answer["handoff"].(map[string]any)
		if answer["deeplink"] != want || handoff["target"] != want || handoff["kind"] != "url" || handoff["instruction"] == "" {
			t.Errorf("%v %v", answer["deeplink"], handoff)
		}
	})
}

// fullRow holds every public field, those that are the owner's and one that was
// made up (market contract, section 5, C).
const fullRow = `{"account":"orchard.lane","permlink":"usdt-sell-1","asset":"USDT","side":"sell","fiat_currency":"EUR","price":"1.02","amount_min":50,"amount_max":600,
	"location_region":"Utrecht NL","payment_methods":["wise"],"accepted_assets":["XMR"],"terms":"by the library","feedback_count":9,"weighted_rating":4.78,"reputation_score":4.33,
	"first_trade_at":"2026-03-11T16:20:00.000Z","is_new_trader":false,"updated_at":"2026-11-28T18:42:10.000Z","created_at":"2026-11-20T09:15:00.000Z",
	"price_model":{"kind":"fixed","price":1.02},"asset_network":"trc20","trade_count":10,"specific_barter_title":"bowls",
	"status":"live","expires_at":"2027-01-15T00:00:00.000Z",
	"fee_method":"blurt","fee_status":"verified","posting_pubkey":"BLT1","profile_json_metadata":{"bio":"x"},"engagement_24h":3,"completed_counterparty":"bob","display_name":"Orchard",
	"invented":"yes","deeplink":"https://evil.example","note":"evil","listing_ref":"l-evil","publicly_listed":true,"user_side":"evil"}`

var publicFields = []string{
	"account", "permlink", "asset", "side", "fiat_currency", "price", "amount_min", "amount_max", "location_region", "payment_methods", "accepted_assets", "terms", "feedback_count",
	"weighted_rating", "reputation_score", "first_trade_at", "is_new_trader", "updated_at", "created_at", "price_model", "asset_network", "trade_count", "specific_barter_title",
}

var innerFields = []string{
	"fee_method", "fee_status", "posting_pubkey", "profile_json_metadata", "engagement_24h", "completed_counterparty", "display_name", "invented", "deeplink", "note",
}

func TestContract21To28TheAllowlist(t *testing.T) {
	st := newStand(t)
	st.says("/v1/orderbook", `{"items":[`+fullRow+`],"deeplink":"https://evil.example","note":"evil"}`)
	st.says("/v1/orders/orchard.lane", `{"items":[`+fullRow+`]}`)
	s := marketAt(t, st.URL)
	search := members(t, s, "morphit_search_orders", `{}`)
	row := rowsOf(t, search)[0]
	get := members(t, s, "morphit_get_listing", `{"account":"orchard.lane","permlink":"usdt-sell-1"}`)
	listing := get["listing"].(map[string]any)
	for name, keeps := range map[string]struct {
		form       map[string]any
		has, hasnt []string
	}{
		"21 and 27: the search form of the tool keeps every public field":  {row, publicFields, nil},
		"22: it drops fee fields, status, expiry and what is invented":     {row, nil, append([]string{"status", "expires_at", "publicly_listed"}, innerFields...)},
		"23 and 28: the listing form of the tool keeps every public field": {listing, publicFields, nil},
		"24: it keeps status and expiry":                                   {listing, []string{"status", "expires_at", "publicly_listed"}, nil},
		"25: it drops fee fields and what is invented":                     {listing, nil, innerFields},
		"26: the search form keeps account and permlink":                   {row, []string{"account", "permlink"}, nil},
		"26: the listing form keeps account and permlink":                  {listing, []string{"account", "permlink"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, field := range keeps.has {
				if _, there := keeps.form[field]; !there {
					t.Errorf("%s is missing", field)
				}
			}
			for _, field := range keeps.hasnt {
				if _, there := keeps.form[field]; there {
					t.Errorf("%s is there", field)
				}
			}
		})
	}
	ours := append([]string{"user_side", "listing_ref"}, publicFields...)
	for field := range row {
		if !slices.Contains(ours, field) {
			t.Errorf("%s is none of the fields", field)
		}
	}
	if row["user_side"] != "buy" || row["listing_ref"] == "l-evil" || search["deeplink"] != st.URL+"/?then=%2Forderbook" || search["note"] != searchNote {
		t.Errorf("the instance speaks in our place: %v", search)
	}
	if row["amount_min"] != "50" || row["price"] != "1.02" || row["weighted_rating"] != 4.78 {
		t.Errorf("%v", row)
	}
}

func TestContract54To58TheToolsOverTheSamples(t *testing.T) {
	st := newStand(t)
	s := marketAt(t, st.URL)
	t.Run("54: every sample has its count in every tool", func(t *testing.T) {
		for arguments, want := range map[string]int{
			`{"limit":3}`: 3, `{"asset":"XMR"}`: 3, `{"asset":"USDT","side":"sell"}`: 2, `{"asset":"ZEC"}`: 0, `{"asset":"DOGE"}`: 5, `{"asset":"LTC"}`: 1,
		} {
			if got := rowsOf(t, members(t, s, "morphit_search_orders", arguments)); len(got) != want {
				t.Errorf("%s: %d rows", arguments, len(got))
			}
		}
		next := members(t, s, "morphit_search_orders", `{"limit":3}`)["next_cursor"].(string)
		if got := rowsOf(t, members(t, s, "morphit_search_orders", `{"limit":3,"cursor":"`+next+`"}`)); len(got) != 3 {
			t.Errorf("page two: %d rows", len(got))
		}
		for arguments, want := range map[string]int{`{}`: 3, `{"include_offline":true}`: 6} {
			if got := members(t, s, "morphit_list_instances", arguments)["instances"].([]any); len(got) != want {
				t.Errorf("%s: %d instances", arguments, len(got))
			}
		}
		if got := members(t, s, "morphit_list_payment_methods", `{}`)["payment_methods"].([]any); len(got) != 60 {
			t.Errorf("%d methods", len(got))
		}
		other := newStand(t)
		for _, path := range []string{"/v1/orderbook", "/v1/instances", "/v1/instance/payment-methods", "/v1/orders/orchard.lane"} {
			other.says(path, `{"results":[]}`)
		}
		o := marketAt(t, other.URL)
		for tool, arguments := range map[string]string{
			"morphit_search_orders": `{}`, "morphit_list_instances": `{}`, "morphit_list_payment_methods": `{}`, "morphit_get_listing": `{"account":"orchard.lane","permlink":"a"}`,
		} {
			if r, isError := askOf(t, o, tool, arguments); !isError || !strings.HasPrefix(r.Content[0].Text, "E_MARKET: ") {
				t.Errorf("%s: %+v", tool, r.Content)
			}
		}
	})
	t.Run("55: price and network reach the agent", func(t *testing.T) {
		rows := rowsOf(t, members(t, s, "morphit_search_orders", `{"asset":"USDT","side":"sell"}`))
		if rows[0]["asset_network"] == rows[1]["asset_network"] || rows[0]["asset_network"] == nil || rows[0]["price_model"].(map[string]any)["kind"] == nil {
			t.Errorf("%v", rows)
		}
	})
	t.Run("56: a user who buys asks for those who sell", func(t *testing.T) {
		for _, row := range rowsOf(t, members(t, s, "morphit_search_orders", `{"asset":"USDT","side":"sell"}`)) {
			if row["side"] != "sell" || row["user_side"] != "buy" {
				t.Errorf("%v", row)
			}
		}
		in := string(s.mcp.GetTool("morphit_search_orders").Tool.RawInputSchema)
		if !strings.Contains(in, "A user who wants to buy asks for sell") || !strings.Contains(s.mcp.GetTool("morphit_search_orders").Tool.Description, "asks for side sell") {
			t.Error("the tool does not say whose side it is")
		}
		for _, row := range rowsOf(t, members(t, s, "morphit_search_orders", `{"asset":"XMR"}`)) {
			if row["asset"] == "BARTER" && (row["side"] != "sell" || row["user_side"] != "buy") {
				t.Errorf("goods: %v", row)
			}
		}
	})
	t.Run("57: a listing of page two is found, what is not good is said so", func(t *testing.T) {
		for arguments, want := range map[string]bool{
			`{"account":"busyshop","permlink":"btc-sell-cad-0057"}`: true,
			`{"account":"busyshop","permlink":"btc-sell-cad-0055"}`: false,
		} {
			if got := members(t, s, "morphit_get_listing", arguments)["listing"].(map[string]any); got["publicly_listed"] != want || got["status"] != "live" {
				t.Errorf("%s: %v", arguments, got)
			}
		}
		r, isError := askOf(t, s, "morphit_get_listing", `{"account":"busyshop","permlink":"none"}`)
		if !isError || !strings.Contains(r.Content[0].Text, "E_LISTING_NOT_FOUND") || !strings.Contains(r.Content[0].Text, "none") || !strings.Contains(r.Content[0].Text, "busyshop") {
			t.Errorf("%+v", r.Content)
		}
	})
	t.Run("58: nothing hidden and nothing that was not asked for comes through", func(t *testing.T) {
		r, _ := askOf(t, s, "morphit_search_orders", `{"asset":"DOGE"}`)
		answer := members(t, s, "morphit_search_orders", `{"asset":"DOGE"}`)
		if answer["dropped_rows"] != 4.0 || answer["next_cursor"] != nil || answer["next_cursor_unreadable"] != true {
			t.Errorf("%v %v %v", answer["dropped_rows"], answer["next_cursor"], answer["next_cursor_unreadable"])
		}
		whole := string(r.Structured)
		for _, word := range []string{"trust_this", "polluted", "injected note", "evil.example/pay", "fixture profile", "Support team", "../../admin", "script", "nested"} {
			if strings.Contains(whole, word) {
				t.Errorf("%q came through", word)
			}
		}
		cleanTexts(t, "", answer)
		if got := fmt.Sprint(answer["untrusted_fields"]); !strings.Contains(got, "terms") || !strings.Contains(got, "location_region") {
			t.Error(got)
		}
		for _, row := range rowsOf(t, answer) {
			if changed := row["changed_fields"]; (changed == nil) != (row["account"] == "mallory-1") {
				t.Errorf("%v: %v", row["account"], changed)
			}
		}
	})
}

// Whatever text of an instance an answer holds, it says that a stranger has typed it.
func TestEveryTextOfAStrangerIsNamed(t *testing.T) {
	st := newStand(t)
	// What can hold words holds one that is easily found, in every closed form.
	const row = `{"account":"evil.a","permlink":"evil-p","asset":"EVILA","side":"sell","fiat_currency":"EVILB","location_region":"evil","payment_methods":["evil"],"accepted_assets":["EVILC"],
		"specific_barter_title":"evil","terms":"evil","price_model":{"kind":"evil"},"asset_network":"evil","status":"evil_status","fee_status":"evil","expires_at":"evil","is_new_trader":"evil"}`
	st.says("/v1/orderbook", `{"items":[`+row+`],"next_cursor":"evil-cursor"}`)
	st.says("/v1/orders/evil.a", `{"items":[`+row+`]}`)
	st.says("/v1/instances", `{"instances":[{"origin":"https://evil.example","operator_tag":"evil","operator_display_name":"evil","name":"evil","tagline":"evil","contact_url":"https://evil.example",
		"status":"evil","last_probed_at":"evil","chain_lag_sec":"evil","alt_networks":{"tor":"evil.onion","i2p_b32":"evil","i2p_name":"evil","lokinet":"evil"}}]}`)
	st.says("/v1/instance/payment-methods", `{"additions":[{"key":"evil","name":"evil","category":"evil"}]}`)
	st.says("/v1/instance", `{"name":"evil","tagline":"evil","contact_url":"https://evil.example","declared_region":"evil","disabled_assets":["EVIL"],"disabled_payment_methods":["evil"]}`)
	s := marketAt(t, st.URL)
	for tool, arguments := range map[string]string{
		"morphit_search_orders": `{}`, "morphit_get_listing": `{"account":"evil.a","permlink":"evil-p"}`, "morphit_list_instances": `{"include_offline":true}`,
		"morphit_list_payment_methods": `{}`, "morphit_describe": `{}`,
	} {
		answer := members(t, s, tool, arguments)
		var named []string
		for _, name := range answer["untrusted_fields"].([]any) {
			named = append(named, name.(string))
		}
		found := 0
		var look func(at []string, v any)
		look = func(at []string, v any) {
			switch v := v.(type) {
			case string:
				if !strings.Contains(strings.ToLower(v), "evil") {
					return
				}
				found++
				for i := range at { // by itself, or within what is named
					for j := i + 1; j <= len(at); j++ {
						if slices.Contains(named, strings.Join(at[i:j], ".")) {
							return
						}
					}
				}
				t.Errorf("%s: %q in %s is not named", tool, v, strings.Join(at, "."))
			case []any:
				for _, e := range v {
					look(at, e)
				}
			case map[string]any:
				for name, e := range v {
					// Ours; where it holds an account and a permlink they are of their form.
					if name != "deeplink" && name != "handoff" {
						look(append(slices.Clip(at), name), e)
					}
				}
			}
		}
		look(nil, answer)
		if found < 3 {
			t.Errorf("%s: %d texts", tool, found)
		}
	}
}

func cleanTexts(t *testing.T, at string, v any) {
	t.Helper()
	switch v := v.(type) {
	case string:
		if strings.ContainsFunc(v, plain.Hidden) {
			t.Errorf("%s: %q", at, v)
		}
	case []any:
		for _, e := range v {
			cleanTexts(t, at, e)
		}
	case map[string]any:
		for k, e := range v {
			cleanTexts(t, at+"."+k, e)
		}
	}
}

// hugeRow is as large as a row can be.
func hugeRow(i int) string {
	wide := strings.Repeat("\u20ac", 4000)
	return fmt.Sprintf(`{"account":"abc","permlink":"p-%d","asset":"BTC","side":"buy","terms":"%s","location_region":"%s","specific_barter_title":"%s","payment_methods":[%s],"accepted_assets":[%s]}`,
		i, wide, wide, wide, strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("\u20ac", 32)+`",`, 12), ","), strings.TrimSuffix(strings.Repeat(`"ABCDEFGHIJKLMNOP",`, 32), ","))
}

func TestAPageWithoutRoomIsAskedForAgainAndShorter(t *testing.T) {
	// The instance keeps to limit, and its cursor is where the next page begins.
	pages := make(map[string]int)
	serve := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, from := 16, 0
		fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		fmt.Sscan(strings.TrimPrefix(r.URL.Query().Get("cursor"), "c"), &from)
		var rows []string
		for i := from; i < min(from+limit, 30); i++ {
			rows = append(rows, hugeRow(i))
		}
		fmt.Fprintf(w, `{"items":[%s],"next_cursor":"c%d"}`, strings.Join(rows, ","), from+len(rows))
		pages[r.URL.RawQuery]++
	}))
	t.Cleanup(serve.Close)
	s := marketAt(t, serve.URL)
	seen, cursor := 0, ""
	for range 30 {
		arguments := `{"limit":16}`
		if cursor != "" {
			arguments = `{"limit":16,"cursor":"` + cursor + `"}`
		}
		answer := members(t, s, "morphit_search_orders", arguments)
		rows := rowsOf(t, answer)
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			if want := fmt.Sprintf("p-%d", seen); row["permlink"] != want {
				t.Fatalf("%v, want %s", row["permlink"], want)
			}
			seen++
		}
		if answer["rows_left_out"] != nil || (answer["terms_shortened"] == nil) != (seen == 30) { // the last page is a short one
			t.Errorf("%d rows: %v %v", len(rows), answer["rows_left_out"], answer["terms_shortened"])
		}
		cursor = answer["next_cursor"].(string)
	}
	if seen != 30 {
		t.Errorf("%d of 30 offers were seen", seen)
	}
}

func TestAnInstanceThatIgnoresTheLimitIsSaidTo(t *testing.T) {
	st := newStand(t)
	var rows []string
	for i := range 40 {
		rows = append(rows, hugeRow(i))
	}
	st.says("/v1/orderbook", `{"items":[`+strings.Join(rows, ",")+`],"next_cursor":"c"}`)
	answer := members(t, marketAt(t, st.URL), "morphit_search_orders", `{}`)
	got := rowsOf(t, answer)
	if left := answer["rows_left_out"]; len(got) == 0 || left != float64(40-len(got)) {
		t.Errorf("%d rows, %v left out", len(got), left)
	}
}

func TestOneOfferIsShownWhole(t *testing.T) {
	st := newStand(t)
	st.says("/v1/orders/abc", `{"items":[`+hugeRow(1)+`]}`)
	answer := members(t, marketAt(t, st.URL), "morphit_get_listing", `{"account":"abc","permlink":"p-1"}`)
	if terms := answer["listing"].(map[string]any)["terms"].(string); len([]rune(terms)) != 2048 {
		t.Errorf("%d characters", len([]rune(terms)))
	}
}

func TestADirectoryWithoutEndHasRoom(t *testing.T) {
	st := newStand(t)
	var all, methods []string
	for i := range 3000 {
		all = append(all, fmt.Sprintf(`{"origin":"https://i%d.example","status":"good","tagline":%q}`, i, strings.Repeat("<", 200)))
		methods = append(methods, fmt.Sprintf(`{"key":"@instance:m%d","name":%q,"category":"online"}`, i, strings.Repeat("<", 64)))
	}
	st.says("/v1/instances", `{"instances":[`+strings.Join(all, ",")+`]}`)
	st.says("/v1/instance/payment-methods", `{"additions":[`+strings.Join(methods, ",")+`]}`)
	s := marketAt(t, st.URL)
	answer := members(t, s, "morphit_list_instances", `{}`)
	if n := len(answer["instances"].([]any)); n < 5 || answer["left_out"] != float64(3000-n) {
		t.Errorf("%d instances, %v left out", n, answer["left_out"])
	}
	answer = members(t, s, "morphit_list_payment_methods", `{}`)
	if n := len(answer["payment_methods"].([]any)); n < 58 || answer["left_out"] != float64(3058-n) {
		t.Errorf("%d methods, %v left out", n, answer["left_out"])
	}
}

func TestAnAgentNamesNoInstanceOfItsOwn(t *testing.T) {
	first, second := newStand(t), newStand(t)
	s := marketAt(t, first.URL, second.URL)
	answer := members(t, s, "morphit_search_orders", `{"asset":"XMR","instance":"`+second.URL+`"}`)
	if answer["instance"] != second.URL || !strings.HasPrefix(answer["deeplink"].(string), second.URL+"/?then=") {
		t.Errorf("%v", answer["instance"])
	}
	for tool, rest := range map[string]string{
		"morphit_search_orders": "", "morphit_list_instances": "", "morphit_list_payment_methods": "", "morphit_describe": "", "morphit_get_listing": `"account":"orchard.lane","permlink":"a",`,
	} {
		r, isError := askOf(t, s, tool, `{`+rest+`"instance":"http://169.254.169.254"}`)
		if !isError || !strings.Contains(r.Content[0].Text, "E_INPUT: there is no configured instance") || !strings.Contains(r.Content[0].Text, "one of "+first.URL+", "+second.URL) {
			t.Errorf("%s: %+v", tool, r.Content)
		}
	}
	if len(first.got) != 0 {
		t.Errorf("the first was asked %q", first.got)
	}
}

func TestArgumentsOfTheMarketAreHeldToTheirBounds(t *testing.T) {
	st := newStand(t)
	s := marketAt(t, st.URL)
	for _, x := range [][2]string{
		{"morphit_search_orders", `{"side":"both"}`}, {"morphit_search_orders", `{"fiat_currency":"eur"}`}, {"morphit_search_orders", `{"fiat_currency":"EUR,"}`},
		{"morphit_search_orders", `{"location_region":""}`}, {"morphit_search_orders", `{"location_region":"` + strings.Repeat("x", 129) + `"}`},
		{"morphit_search_orders", `{"payment_methods":"` + strings.Repeat("x", 257) + `"}`}, {"morphit_search_orders", `{"payment_methods":" , "}`},
		{"morphit_search_orders", `{"min_trades":101}`}, {"morphit_search_orders", `{"min_trades":-1}`}, {"morphit_search_orders", `{"min_trades":1.5}`},
		{"morphit_search_orders", `{"limit":0}`}, {"morphit_search_orders", `{"limit":101}`}, {"morphit_search_orders", `{"limit":"5"}`}, {"morphit_search_orders", `{"sort":"price"}`},
		{"morphit_search_orders", `{"cursor":""}`}, {"morphit_search_orders", `{"cursor":"` + strings.Repeat("x", 513) + `"}`}, {"morphit_search_orders", `{"url":"https://evil.example"}`},
		{"morphit_get_listing", `{}`}, {"morphit_get_listing", `{"account":"abc"}`}, {"morphit_get_listing", `{"account":"../admin","permlink":"a"}`},
		{"morphit_get_listing", `{"account":"abc","permlink":"a/b"}`}, {"morphit_get_listing", `{"account":"abc","permlink":"` + strings.Repeat("a", 33) + `"}`},
		{"morphit_get_listing", `{"account":"abc\n","permlink":"a"}`}, {"morphit_list_instances", `{"include_offline":1}`}, {"morphit_describe", `{"x":1}`}, {"morphit_list_payment_methods", `{"x":1}`},
	} {
		if r, isError := askOf(t, s, x[0], x[1]); !isError || !strings.HasPrefix(r.Content[0].Text, "E_INPUT: ") {
			t.Errorf("%s %.80s: %+v", x[0], x[1], r.Content)
		}
	}
	if len(st.got) != 0 {
		t.Errorf("the instance was asked %q", st.got)
	}
}

func TestContract67WithoutAMarketNothingOfItIsOffered(t *testing.T) {
	s, err := build(&fake{}, Options{Guard: &fakeGuard{}}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	withMarket, err := build(&fake{}, Options{Guard: &fakeGuard{}, Market: clientOf(t, "https://market.example")}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*service{s, withMarket} { // named or not, it is no default
		for name, tool := range s.mcp.ListTools() {
			if strings.HasPrefix(name, "morphit") || *tool.Tool.Annotations.OpenWorldHint || strings.Contains(string(tool.Tool.RawInputSchema), "listing_ref") {
				t.Errorf("%s is offered", name)
			}
		}
	}
	if _, isError := askOf(t, s, "check_before_pay", `{"counterparty":"a","amount":"1","listing_ref":"l-1"}`); !isError {
		t.Error("listing_ref is taken where no listing is shown")
	}
	_, err = build(&fake{}, Options{Guard: &fakeGuard{}, Toolsets: []string{"trace", "market"}}, overStdio)
	if want := "E_USAGE: offer the toolset market: this server was started without a market instance. try: leave market out of the toolsets"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestAListingRefReachesTheGuardWithTheMarketOn(t *testing.T) {
	var asked guard.Request
	g := &fakeGuard{check: func(_ context.Context, r guard.Request) (*guard.Verdict, error) {
		asked = r
		return nil, errors.New("asked")
	}}
	st := newStand(t)
	s, err := build(&fake{}, Options{Guard: g, Market: clientOf(t, st.URL), Toolsets: []string{"guard", "market"}}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	ref := rowsOf(t, members(t, s, "morphit_search_orders", `{"asset":"XMR"}`))[0]["listing_ref"].(string)
	askOf(t, s, "check_before_pay", `{"listing_ref":"`+ref+`","amount":"60","asset":"fiat/EUR"}`)
	if diff := cmp.Diff(guard.Request{ListingRef: ref, Amount: "60", Asset: "fiat/EUR"}, asked); diff != "" {
		t.Error(diff)
	}
	for arguments, want := range map[string]string{
		`{"amount":"60"}`:                  `"counterparty" is missing`,
		`{"listing_ref":"l-1"}`:            `"amount" is missing`,
		`{"listing_ref":"","amount":"60"}`: `"listing_ref" is empty`,
		`{"listing_ref":7,"amount":"60"}`:  `"listing_ref" must be text`,
		`{"listing_ref":"` + strings.Repeat("l", 129) + `","amount":"60"}`: `"listing_ref" is too long`,
	} {
		if r, isError := askOf(t, s, "check_before_pay", arguments); !isError || !strings.Contains(r.Content[0].Text, want) {
			t.Errorf("%.60s: %+v", arguments, r.Content)
		}
	}
	if n := len(traceInstructions) + len(guardInstructions) + len(marketInstructions) + 4; n > hostText {
		t.Errorf("the instructions have %d bytes, hosts show %d", n, hostText)
	}
}

// A slow instance must not keep an agent from checking a payment.
func TestAnInstanceThatStallsHoldsUpNoCheck(t *testing.T) {
	release := make(chan struct{})
	serve := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.Write([]byte(`{"items":[]}`))
	}))
	t.Cleanup(serve.Close)
	g := verdicts(&guard.Verdict{Decision: guard.Allow})
	s, err := build(&fake{}, Options{Guard: g, Market: clientOf(t, serve.URL), Toolsets: []string{"guard", "market"}}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	c := connectTo(t, t.Context(), s, 0, shutdown)
	const searches = quickSlots + 4
	for i := range searches {
		c.send(call(i, "morphit_search_orders", fmt.Sprintf(`{"cursor":"c%d"}`, i)))
	}
	c.send(call("check", "check_before_pay", simple))
	if m := c.must(); string(m.ID) != `"check"` {
		t.Errorf("%s was answered first", m.ID)
	}
	close(release)
	c.in.Close()
	if got := len(c.rest()); got != searches {
		t.Errorf("%d of %d searches were answered", got, searches)
	}
}
