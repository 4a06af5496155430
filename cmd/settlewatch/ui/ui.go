package ui

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
)

// Options says whose page it is and what it is made from.
type Options struct {
	Guard *guard.Guard
	Index *ingest.Indexer
	Now   func() time.Time

	// Authority is the one host and port the pages are served under, such as
	// "k3v9….localhost:4711". Its label must be one that nothing else on the machine
	// knows: cookies ignore ports.
	Authority string
	// Doors are other authorities of the same listener, such as "127.0.0.1:4711".
	// They serve a page without data, which reviewUrl may name.
	Doors []string

	// Signer signs what loosens; nil where the policy names no operators.
	Signer decision.Signer
	// Entered is told of a login, with the code that Confirm wants where there is a
	// Signer; nil tells nobody.
	Entered func(by string)

	Words   Words
	Version string
	Random  io.Reader    // of secrets; nil for the system's
	Log     *slog.Logger // nil discards
}

// Words say things as the commands do.
type Words struct {
	Review  func(v *guard.ReviewView) Card
	Warning func(code string) string
	Network func(id string) string
	Command func(command string) string // a command of ours on this root, as it is typed
}

// Card is a review as people read it. Every text is clean.
type Card struct {
	Amount   string // with its asset
	To       string // the account, "" when none was named
	Hosts    []string
	Network  string
	Rows     []Row
	Account  string // what names the counterparty in a link
	Evidence []Reason
	Call     *Call // what an approval lets run, where it is no payment
}

// Call is a tool call as people read it: all of it, since it runs as it is shown
// (approvals contract, section 9.7b).
type Call struct {
	Tool, Resource string
	Arguments      []string // lines; whatever a screen would hide stands as an escape
	Alike          bool     // there are letters beyond ASCII, some of which look like others
}

// Row is a fact of a card and where it comes from.
type Row struct{ Label, Value, Origin string }

// Reason is a rule that fired.
type Reason struct {
	Rule, Detail string
	Evidence     []decision.Ref
	More         int // evidence that is not named
}

// UI serves the pages of one root.
type UI struct {
	o     Options
	g     *guard.Guard
	x     *ingest.Indexer
	now   func() time.Time
	say   *slog.Logger
	pages map[string]*template.Template
	mux   *http.ServeMux
	door  http.Handler
	doors map[string]bool

	sessions sessions
	figures  figures

	mu       sync.Mutex
	forms    map[string]*sent // that were sent, by their numbers
	knocked  string           // the review somebody came to the door for
	knockedN int64
}

//go:embed static
var static embed.FS

//go:embed pages
var pages embed.FS

// New makes the pages. It asks nothing yet.
func New(o Options) (*UI, error) {
	if o.Guard == nil || o.Index == nil || o.Now == nil || o.Authority == "" {
		return nil, errors.New("ui: Guard, Index, Now and Authority are required")
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Entered == nil {
		o.Entered = func(string) {}
	}
	u := &UI{o: o, g: o.Guard, x: o.Index, now: o.Now, say: o.Log, forms: map[string]*sent{}, doors: map[string]bool{}}
	for _, d := range o.Doors {
		u.doors[strings.ToLower(d)] = true
	}
	u.sessions.init(o.Random)
	if err := u.parse(); err != nil {
		return nil, err
	}
	u.routes()
	return u, nil
}

// Handler serves the pages.
func (u *UI) Handler() http.Handler { return http.HandlerFunc(u.serve) }

// Prepare works the figures out before anybody asks for them.
func (u *UI) Prepare(ctx context.Context) { u.figures.refresh(ctx, u) }

func (u *UI) routes() {
	u.mux = http.NewServeMux()
	page := func(pattern string, h func(*request) error) {
		u.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { u.page(w, r, h) })
	}
	act := func(pattern string, h func(*request) error) {
		u.mux.HandleFunc("POST "+pattern, func(w http.ResponseWriter, r *http.Request) { u.act(w, r, h) })
	}
	page("GET /{$}", (*request).overview)
	page("GET /reviews", (*request).reviews)
	page("GET /review/{id}", (*request).review)
	page("GET /operations", (*request).operations)
	page("GET /operation", (*request).operation)
	page("GET /receipt.json", (*request).receipt)
	page("GET /counterparty", (*request).counterparty)
	page("GET /log", (*request).log)
	page("GET /checkpoint.json", (*request).checkpoint)
	page("GET /health", (*request).health)
	page("GET /find", (*request).find)
	page("GET /state", (*request).state)
	once := func(pattern string, h func(*request) error) {
		act(pattern, func(q *request) error { return q.once(h) })
	}
	once("/decide", (*request).decide)
	once("/batch", (*request).batch)
	once("/resolve", (*request).resolve)
	once("/freeze", (*request).freeze)
	once("/unfreeze", (*request).unfreeze)
	act("/verify", (*request).verify)
	act("/leave", (*request).leave)
	u.mux.HandleFunc("GET /login", u.login)
	page("GET /", func(*request) error { return errNotFound })
	assets, _ := fs.Sub(static, "static") // it is embedded
	files := http.FileServerFS(assets)
	u.mux.Handle("GET /static/", http.StripPrefix("/static/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The host name is new with every start, so nothing stale is ever read.
		w.Header().Set("Cache-Control", "private, max-age=3600")
		files.ServeHTTP(w, r)
	})))
	u.door = u.doorway()
}
