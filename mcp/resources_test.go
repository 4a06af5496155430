package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

func TestResourceAddresses(t *testing.T) {
	for uri, want := range map[string]ingest.Ref{
		"trace://1796030997497/24accded-0711":    {Run: "1796030997497", Operation: "24accded-0711"},
		"trace://a%2Fb/c%3Fd%23e%25f":            {Run: "a/b", Operation: "c?d#e%f"},
		"trace://a/%e2%82%ac":                    {Run: "a", Operation: "€"},
		"trace://a/%F0%9F%98%80%ED%A0%80":        {Run: "a", Operation: "😀\xed\xa0\x80"},
		"trace://a.ndjson/~x_y-z.":               {Run: "a.ndjson", Operation: "~x_y-z."},
		"trace://A/b%00":                         {Run: "A", Operation: "b\x00"},
		"trace://a/..":                           {Run: "a", Operation: ".."},
		"":                                       {},
		"trace:":                                 {},
		"trace://":                               {},
		"trace://a":                              {},
		"trace://a/":                             {},
		"trace:///b":                             {},
		"trace://a/b/c":                          {},
		"trace://a/b?x=1":                        {},
		"trace://a/b#x":                          {},
		"trace://a/b c":                          {},
		"trace://a/é":                            {},
		"trace://a/%":                            {},
		"trace://a/%4":                           {},
		"trace://a/%zz":                          {},
		"trace://a:1/b":                          {},
		"Trace://a/b":                            {},
		"file:///etc/passwd":                     {},
		"trace://a/" + strings.Repeat("%", 3000): {},
	} {
		got, err := parseResource(uri)
		if got != want || (err == nil) != (want.Run != "") {
			t.Errorf("%.60s is %+v (%v), want %+v", uri, got, err, want)
		}
	}
}

func TestAnAddressLeadsBackToItsOperation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ref := ingest.Ref{
			Run:       string(rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "run")),
			Operation: string(rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "operation")),
		}
		if got, err := parseResource(resourceURI(ref)); err != nil || got != ref {
			t.Errorf("%q leads to %+v (%v)", resourceURI(ref), got, err)
		}
	})
}

func FuzzResourceAddress(f *testing.F) {
	f.Add("trace://a/b%20c")
	f.Fuzz(func(t *testing.T, uri string) {
		ref, err := parseResource(uri)
		if err != nil {
			return
		}
		// The address of what was found has the same reading.
		if again, err := parseResource(resourceURI(ref)); err != nil || again != ref {
			t.Errorf("%q is %+v, whose address leads to %+v (%v)", uri, ref, again, err)
		}
	})
}

func TestAResourceThatIsNotThereIsAProtocolError(t *testing.T) {
	for name, test := range map[string]struct {
		params string
		err    error
		code   int
		want   string
	}{
		"an unknown operation":       {`{"uri":"trace://a/b"}`, errcode.New(errcode.OperationNotFound, "list", "there is no b"), -32002, "E_OPERATION_NOT_FOUND: there is no b. try: list"},
		"an unknown run":             {`{"uri":"trace://a/b"}`, errcode.New(errcode.RunNotFound, "list", "there is no a"), -32002, "E_RUN_NOT_FOUND: there is no a. try: list"},
		"a broken template":          {`{"uri":"trace://a/b"}`, errcode.New(errcode.TemplateInvalid, "mend", "it is broken"), -32603, "E_TEMPLATE_INVALID: it is broken. try: mend"},
		"an unexpected error":        {`{"uri":"trace://a/b"}`, errors.New("open /home/x"), -32603, "E_INTERNAL: the server failed while answering. try: call again, and report the server's log if it fails again"},
		"another scheme":             {`{"uri":"file:///etc/passwd"}`, nil, -32002, `E_INPUT: "file:///etc/passwd" is no receipt's address`},
		"an empty id":                {`{"uri":"trace://a/"}`, nil, -32602, `E_INPUT: "trace://a/" is no receipt's address`},
		"a very long address":        {`{"uri":"` + strings.Repeat("x", 100_000) + `"}`, nil, -32002, `E_INPUT: "xxx`},
		"an address with characters": {`{"uri":"trace://a/b c"}`, nil, -32002, `E_INPUT: "trace://a/b c" is no receipt's address`},
		"no address":                 {`{}`, nil, -32002, `E_INPUT: "" is no receipt's address`},
		"an address that is a list":  {`{"uri":[]}`, nil, -32602, `E_INPUT: "" is no receipt's address`},
	} {
		traces := &fake{receipt: func(context.Context, ingest.Ref, string) (*ingest.Receipt, error) { return nil, test.err }}
		c := connect(t, t.Context(), traces, Options{}, shutdown)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":` + test.params + `}`)
		c.in.Close()
		m := c.must()
		if m.Error == nil || m.Error.Code != test.code || !strings.HasPrefix(m.Error.Message, test.want) {
			t.Errorf("%s: %s %+v", name, m.Result, m.Error)
		}
	}
}

func TestTheNewestOperationsAreListedAsResources(t *testing.T) {
	page := &ingest.Page{NextCursor: "more", Operations: []ingest.Row{
		{Ref: ingest.Ref{Run: "r", Operation: "a/b\u202e"}, Completeness: "full", Settlement: "settled"},
		{Ref: ingest.Ref{Run: "r", Null: true}, Completeness: "full", Settlement: "settled"},
	}}
	var asked ingest.Query
	traces := &fake{list: func(_ context.Context, q ingest.Query) (*ingest.Page, error) {
		asked = q
		return page, nil
	}}
	c := connect(t, t.Context(), traces, Options{}, shutdown)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`)
	const want = `{"resources":[{"uri":"trace://r/a%2Fb%E2%80%AE","name":"a/b","description":"run r: full, settlement settled","mimeType":"application/json"}]}`
	if m := c.must(); string(m.Result) != want {
		t.Errorf("the answer is %s %+v", m.Result, m.Error)
	}
	if asked != (ingest.Query{Limit: 50}) {
		t.Errorf("asked for %+v", asked)
	}
	// Addresses of any length stay within the limit of an answer.
	for range 48 {
		page.Operations = append(page.Operations, ingest.Row{Ref: ingest.Ref{Run: "r", Operation: strings.Repeat("é", 2000)}})
	}
	c.send(`{"jsonrpc":"2.0","id":2,"method":"resources/list"}`)
	var result struct {
		Resources  []struct{ URI string }
		NextCursor string
	}
	m := c.must()
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Resources) < 3 || len(result.Resources) > 10 || len(m.Result) > answerLimit || result.NextCursor != "" {
		t.Errorf("%d resources in %d bytes (%v)", len(result.Resources), len(m.Result), err)
	}
	c.in.Close()
}

func TestWithoutRunsNoResourceIsListed(t *testing.T) {
	for _, err := range []error{errcode.New(errcode.NoRuns, "", "none"), errors.New("boom")} {
		c := connect(t, t.Context(), lists(nil, err), Options{}, shutdown)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`)
		c.in.Close()
		if m := c.must(); string(m.Result) != `{"resources":[]}` {
			t.Errorf("the answer is %s %+v", m.Result, m.Error)
		}
	}
}
