package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/store"
)

// Index is what the guard asks for history; *ingest.Indexer is one.
type Index interface {
	// Sync makes the index cover every complete line that was in the run files
	// when it was called.
	Sync(ctx context.Context) error
	// Ask syncs and runs fn over one snapshot.
	Ask(ctx context.Context, fn func(*store.View) error) error
	// AskSynced is Ask over what this process's last Sync brought up to date, or
	// something newer.
	AskSynced(ctx context.Context, fn func(*store.View) error) error
	// Prefix is the crc32c of the first n bytes of a run file; ok is false when
	// it is gone or shorter.
	Prefix(ctx context.Context, file []byte, n int64) (crc uint32, ok bool, err error)
	// Damage lists the damage of the runs changed after rev, 0 for all.
	Damage(v *store.View, rev int64) ([]store.RunDamage, error)
}

// Options says what a Guard judges by.
type Options struct {
	Index  Index
	Dir    string // the guard directory, a real path; it need not exist yet
	Policy *Policy
	// PolicyPath is where Policy came from, "" for the defaults.
	PolicyPath string
	// Fault is why the guard cannot judge: the policy file or the root could not
	// be read. Every check is then not_ready (guard contract, section 1).
	Fault error
	// Template resolves an additional template that is not a shipped one.
	Template func(name string) (*assemble.Resolved, error)

	// Listing recalls an offer that was shown in this process, nil for one that is
	// not known any more. It asks nobody. nil: no offers are shown here.
	Listing func(ref string) *Listing

	// Repeat is what a command has to be given to mean this root, as typed behind it:
	// " --dir /srv/agent/.trace", or nothing for the default.
	Repeat string

	Now         func() time.Time
	Version     string
	SyncTimeout time.Duration // how long a check waits for history; 0 means 10 s
	LockWait    time.Duration // and for the log's lock; 0 means 2 s
	Checkpoint  string        // file to keep a checkpoint of the log in, "" for none
	Log         *slog.Logger  // nil discards

	// Decisions is the log in Dir, where it is open already; it is not read again if
	// it goes by the policy's operators. Checkpoint and LockWait are then its own.
	Decisions *decision.Log

	// Receipts of version 1 of the approvals protocol count under HMAC, nil for
	// never; and stand for a person only with AllowHMAC, since whoever can verify
	// one could have made it (approvals contract, section 9.3).
	HMAC      *approval.HMACKey
	AllowHMAC bool
}

// Guard answers for one trace root. Its methods may be called from many goroutines
// and any number of processes may have one on the same root.
type Guard struct {
	o           Options
	policy      *Policy // the defaults where the file could not be read
	hash        string
	log         *decision.Log
	say         *slog.Logger
	now         func() time.Time
	buyer       *assemble.Template
	classes     classes
	damages     damages
	resolutions resolutions
	passed      passed
	seen        seen

	mu   sync.Mutex
	mine map[string]bool // holds this process was given
}

const (
	defaultSyncTimeout = 10 * time.Second
	defaultLockWait    = 2 * time.Second
)

// New makes a Guard. It touches nothing on disk.
func New(o Options) (*Guard, error) {
	if o.Now == nil || o.Index == nil {
		return nil, errors.New("guard: Options.Now and Options.Index are required")
	}
	if o.SyncTimeout == 0 {
		o.SyncTimeout = defaultSyncTimeout
	}
	if o.LockWait == 0 {
		o.LockWait = defaultLockWait
	}
	g := &Guard{o: o, policy: o.Policy, now: o.Now, say: o.Log, mine: map[string]bool{}}
	if g.say == nil {
		g.say = slog.New(slog.DiscardHandler)
	}
	if g.policy == nil {
		g.policy = DefaultPolicy()
	}
	g.hash = g.policy.Hash()
	g.buyer = assemble.Shipped(assemble.DefaultTemplate)
	var err error
	if g.log = o.Decisions; g.log != nil && g.log.GoesBy(g.policy.Operators) {
		return g, nil
	}
	g.log, err = decision.Open(decision.Options{
		Dir: o.Dir, Now: o.Now, LockWait: o.LockWait, Operators: g.policy.Operators, Checkpoint: o.Checkpoint, Log: g.say,
	})
	return g, err
}

// Policy is what judges: the defaults where the policy file could not be read.
func (g *Guard) Policy() *Policy { return g.policy }

// Log is the decisions log.
func (g *Guard) Log() *decision.Log { return g.log }

// frozenFile is a file that freezes everything while it exists: something a
// person can make when nothing else works (guard contract, section 6).
const frozenFile = "FROZEN"

func (g *Guard) frozenByFile() bool {
	_, there := g.FreezeFile()
	return there
}

// FreezeFile is where the file is, or would be, that freezes everything while it
// exists.
func (g *Guard) FreezeFile() (path string, there bool) {
	path = filepath.Join(g.o.Dir, frozenFile)
	// A directory that cannot be looked into has no log either: no check is an allow.
	_, err := os.Lstat(path)
	return path, err == nil
}

// update appends to the log under its lock. What fn returns is preceded by a
// policy line where the policy is another one than the log last named.
func (g *Guard) update(ctx context.Context, actor string, fn func(*decision.State) ([]decision.Body, error)) (*decision.State, error) {
	return g.log.Update(ctx, actor, func(s *decision.State) ([]decision.Body, error) {
		bodies, err := fn(s)
		if err != nil || len(bodies) == 0 {
			return nil, err
		}
		if _, said := bodies[0].(decision.Policy); said {
			return bodies, nil
		}
		if line := g.policyLine(s); line != nil {
			bodies = append([]decision.Body{line}, bodies...)
		}
		return bodies, nil
	})
}

// begin makes sure that the log has a first line: a signature is bound to it (guard
// contract, section 4).
func (g *Guard) begin(ctx context.Context, by decision.Signer) error {
	if by == nil {
		return nil
	}
	s, err := g.log.Read(ctx)
	if err != nil || s.Lines() > 0 {
		return err
	}
	_, err = g.log.Update(ctx, "", func(s *decision.State) ([]decision.Body, error) {
		if line := g.policyLine(s); line != nil && s.Lines() == 0 {
			return []decision.Body{line}, nil
		}
		return nil, nil
	})
	return err
}

// basis is what held at an instant, since which the index was brought up to date.
type basis struct {
	log *decision.State
	at  time.Time
}

// still tells whether s at an instant says what held then. A line that came since may
// rest on payments that are not in the index yet, such as one that ends a hold on what
// was paid; so may a hold that has run out since.
func (h *basis) still(s *decision.State, now time.Time) bool {
	if h == nil || h.log != s {
		return false
	}
	for hold := range s.Unended() {
		if hold.Active(h.at) && !hold.Active(now) {
			return false
		}
	}
	return true
}

// decide is update with one snapshot of the index, brought up to date under the lock
// unless what held before it was last brought up to date still does: covered, nil for
// not known. Where evidence is found to have vanished, that is written down first, so
// that fn decides knowing it.
func (g *Guard) decide(ctx context.Context, actor string, covered *basis, fn func(*store.View, *decision.State) ([]decision.Body, error)) (*decision.State, error) {
	for range decideTries {
		var noticed notices
		again, wrote := false, false
		s, err := g.update(ctx, actor, func(s *decision.State) (bodies []decision.Body, err error) {
			ask := g.o.Index.Ask
			if covered.still(s, g.now()) {
				ask = g.o.Index.AskSynced
			}
			err = g.within(context.WithValue(ctx, noticing{}, &noticed), ask, func(v *store.View) (err error) {
				// What the indexer has just told of is in the log before the rest is
				// compared with it.
				if bodies = noticed.take(s); len(bodies) == 0 {
					if bodies, err = g.lost(ctx, v, s); len(bodies) > 0 {
						bodies = append(bodies, g.seen.lines(s)...)
					}
				}
				if again = len(bodies) > 0; err != nil || again {
					return err
				}
				bodies, err = fn(v, s)
				return err
			})
			wrote = len(bodies) > 0
			return bodies, err
		})
		if err != nil {
			return nil, err
		}
		if wrote {
			g.seen.written(s)
		}
		if !again {
			return s, nil
		}
	}
	return nil, errRestless
}

// look is decide for who only looks: the log is read after the index was brought up
// to date, since that may have written down that evidence vanished.
func (g *Guard) look(ctx context.Context, fn func(*store.View, *decision.State) error) error {
	return g.ask(ctx, func(v *store.View) error {
		s, err := g.log.Read(ctx)
		if err != nil {
			return err
		}
		return fn(v, s)
	})
}

// decideTries bounds how often a decision begins again because evidence vanished
// meanwhile.
const decideTries = 4

var errRestless = errors.New("the run files keep changing under the guard; ask again in a moment")

func (g *Guard) policyLine(s *decision.State) decision.Body {
	if g.o.Fault != nil {
		return nil // nothing is known of the policy, so nothing is said of it
	}
	last := s.Policy()
	if last != nil && last.Hash == g.hash && last.Path == g.o.PolicyPath && last.Version == g.o.Version {
		return nil
	}
	return decision.Policy{Path: g.o.PolicyPath, Hash: g.hash, Operators: g.policy.Operators, Version: g.o.Version}
}

// template gives the additional template a request names, nil for none. A local
// file that shadows a shipped name never reaches the guard (guard contract,
// section 1).
func (g *Guard) template(name string) (*assemble.Template, error) {
	if name == "" || name == assemble.DefaultTemplate {
		return nil, nil
	}
	if t := assemble.Shipped(name); t != nil {
		return t, nil
	}
	if !assemble.IsName(name) {
		return nil, errcode.New(errcode.TemplateNotFound, "name a template without a path", "template %q is not a name", name)
	}
	if g.o.Template == nil {
		return nil, errcode.New(errcode.TemplateNotFound, "", "template %q is not known", name)
	}
	r, err := g.o.Template(name)
	if err != nil {
		return nil, err
	}
	return r.Template, nil
}

// why words an error for a verdict or a standing.
func why(err error) string {
	var known *errcode.Error
	if errors.As(err, &known) {
		if known.Hint != "" {
			return fmt.Sprintf("%s; %s", known.Message, known.Hint)
		}
		return known.Message
	}
	return err.Error()
}

func asUnsound(err error) *decision.Unsound {
	var unsound *decision.Unsound
	if errors.As(err, &unsound) {
		return unsound
	}
	return nil
}
