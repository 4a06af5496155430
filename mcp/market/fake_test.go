package market

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// samples is where replies of instances are.
var samples = filepath.Join("..", "..", "testdata", "market")

func sample(t testing.TB, name string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(samples, name))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// route is an entry of routes.json.
type route struct {
	Request struct {
		Path  string
		Query map[string]string
	}
	Response struct {
		Status  int
		Headers map[string]string
		File    string
	}
}

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// noon is within the life of the samples.
var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// fake is an instance on a real socket. It serves the samples, and what a test puts
// in their place.
type fake struct {
	*httptest.Server
	t      testing.TB
	routes []route

	mu    sync.Mutex
	own   map[string]http.HandlerFunc // by path
	asked []*http.Request
}

func newFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{t: t, own: map[string]http.HandlerFunc{}}
	if err := json.Unmarshal(sample(t, "routes.json"), &f.routes); err != nil {
		t.Fatal(err)
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Server.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.Clone(context.Background()))
	own := f.own[r.URL.Path]
	f.mu.Unlock()
	if own != nil {
		own(w, r)
		return
	}
	query := map[string]string{}
	for name := range r.URL.Query() {
		query[name] = r.URL.Query().Get(name)
	}
	for _, x := range f.routes {
		if x.Request.Path == r.URL.Path && reflect.DeepEqual(x.Request.Query, query) {
			for name, value := range x.Response.Headers {
				w.Header().Set(name, value)
			}
			w.WriteHeader(x.Response.Status)
			w.Write(sample(f.t, x.Response.File))
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
	w.Write(sample(f.t, "error-not-found.json"))
}

// on answers a path in a way of its own.
func (f *fake) on(path string, handler http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own[path] = handler
}

// says answers a path with a body.
func (f *fake) says(path, body string) {
	f.on(path, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) })
}

func (f *fake) requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*http.Request{}, f.asked...)
}

// client asks the instance. set may change how.
func (f *fake) client(set func(*Options)) (*Client, *clock) {
	f.t.Helper()
	return newClient(f.t, func(o *Options) {
		o.Instances = []string{f.URL}
		o.AllowPrivate, o.AllowHTTP = true, true
		if set != nil {
			set(o)
		}
	})
}

func newClient(t testing.TB, set func(*Options)) (*Client, *clock) {
	t.Helper()
	c := &clock{t: noon}
	o := Options{Now: c.now, Version: "1.2.3"}
	set(&o)
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, c
}

// names is a resolver that answers from a list, one entry a question, the last for
// good.
type names struct {
	mu    sync.Mutex
	all   [][]string
	asked []string
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, host)
	if len(n.all) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.0.0.2:53", IsNotFound: true}
	}
	now := n.all[0]
	if len(n.all) > 1 {
		n.all = n.all[1:]
	}
	var out []netip.Addr
	for _, a := range now {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

// refusedAs holds an error to a code and to words it has.
func refusedAs(t *testing.T, err error, code errcode.Code, words ...string) {
	t.Helper()
	var coded *errcode.Error
	if !errors.As(err, &coded) || coded.Code != code {
		t.Fatalf("%v, want %s", err, code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if coded.Hint == "" {
		t.Errorf("%q has no hint", err)
	}
}

func hostPort(t *testing.T, text string) (host, port string) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u.Hostname(), u.Port()
}
