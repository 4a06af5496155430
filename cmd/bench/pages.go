package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/ui"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/ingest"
)

// pageReviews is how many reviews wait where pages are measured.
const pageReviews = 200

// page gives a work that times a page of settlewatch ui, as its handler answers.
// The address may hold %s: the busiest counterparty.
func page(path string) work {
	return func(ctx context.Context, t task) (sample, error) {
		return asked(ctx, t, 100, func(x *ingest.Indexer) (func(int) error, error) {
			p, err := guard.ParsePolicy([]byte(`{"logAllows": false, "reviewAbove": "0.01", "maxPendingReviews": 1000}`))
			if err != nil {
				return nil, err
			}
			g, err := guarding(t, x, p)
			if err != nil {
				return nil, err
			}
			for i := range pageReviews {
				if _, err := g.Check(ctx, guard.Request{Counterparty: fmt.Sprintf("0x%040x", i+1), Amount: "0.02"}); err != nil {
					return nil, err
				}
			}
			to, err := pageOf(ctx, t, x, path)
			if err != nil {
				return nil, err
			}
			began := time.Now()
			u, err := ui.New(ui.Options{Guard: g, Index: x, Authority: "bench.localhost:1", Version: "bench",
				Now: func() time.Time { return dataEnd.Add(time.Since(began)) },
				Words: ui.Words{
					Review:  func(v *guard.ReviewView) ui.Card { return ui.Card{Amount: v.Amount, To: v.PayTo} },
					Warning: func(code string) string { return code }, Network: func(id string) string { return id }, Command: func(c string) string { return c },
				}})
			if err != nil {
				return nil, err
			}
			u.Prepare(ctx)
			get := func(path string, cookies []*http.Cookie) *httptest.ResponseRecorder {
				r := httptest.NewRequest(http.MethodGet, "http://bench.localhost:1"+path, nil)
				for _, c := range cookies {
					r.AddCookie(c)
				}
				w := httptest.NewRecorder()
				u.Handler().ServeHTTP(w, r)
				return w
			}
			link, err := url.Parse(u.Link())
			if err != nil {
				return nil, err
			}
			login := get(link.RequestURI(), nil).Result()
			_ = login.Body.Close()
			return func(int) error {
				if w := get(to, login.Cookies()); w.Code != http.StatusOK || w.Body.Len() > 150<<10 {
					return fmt.Errorf("%s: status %d, %d bytes", to, w.Code, w.Body.Len())
				}
				return nil
			}, nil
		})
	}
}

// pageOf fills in whom or what a page is about.
func pageOf(ctx context.Context, t task, x *ingest.Indexer, path string) (string, error) {
	switch path {
	case "/counterparty":
		all, err := counterparties(ctx, t, x)
		if err != nil {
			return "", err
		}
		return path + "?name=" + url.QueryEscape(all[0]), nil
	case "/operation":
		list, err := x.List(ctx, ingest.Query{Limit: 1})
		if err != nil {
			return "", err
		}
		o := list.Operations[0]
		return path + "?" + url.Values{"run": {o.Run}, "op": {o.Operation}}.Encode(), nil
	}
	return path, nil
}
