package decision

import (
	"cmp"
	"crypto/sha256"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/tidwall/btree"
)

// State is what the lines of the log add up to (guard contract, sections 4 to 7).
// It never changes: what is appended later is in a later State, which shares with
// this one all that stayed the same. It may be read by any number of goroutines.
type State struct {
	lines      int64
	sig, first string
	at         time.Time
	torn       int64

	policy *Policy
	manned *Policy // the last one that named operators

	reviews  *btree.Map[string, *ReviewState] // by id
	opened   *btree.Map[int64, *ReviewState]  // by the line that opened it
	live     *btree.Map[string, *ReviewState] // pending, or approved and unused; by intent, then line
	rejected *btree.Map[int64, *ReviewState]  // by the line that rejected it

	holds    *btree.Map[int64, *HoldState] // not ended by a line; by line
	holdIDs  *btree.Map[string, int64]
	consumed *btree.Map[string, int64] // by digest of the reference

	receipts *btree.Map[string, *ReceiptState] // that were issued; by id
	burnt    *btree.Map[string, struct{}]      // ids of receipts that are used up, of others' too
	spends   *btree.Map[string, *ReceiptState] // issued ones that spend; by gate and the day they count in
	began    time.Time                         // of a log that began anew

	frozen   *btree.Map[string, *frozenState]
	resolved *btree.Map[string, *Resolved]
	closedBy string

	baseline     *Baseline
	baselineRuns map[string]Covered // never changed once made

	seen      *btree.Map[string, Covered]
	seenAt    time.Time
	rewrites  *btree.Map[string, *[]*RewrittenState] // not acknowledged
	rewritten *btree.Map[string, struct{}]           // since the baseline
	acks      *btree.Map[string, *Acknowledged]

	verdicts *btree.Map[string, *verdict]

	ignored      []Ignored
	ignoredTotal int
}

func newState() *State {
	return &State{
		reviews: &btree.Map[string, *ReviewState]{}, opened: &btree.Map[int64, *ReviewState]{},
		live: &btree.Map[string, *ReviewState]{}, rejected: &btree.Map[int64, *ReviewState]{},
		holds: &btree.Map[int64, *HoldState]{}, holdIDs: &btree.Map[string, int64]{}, consumed: &btree.Map[string, int64]{},
		receipts: &btree.Map[string, *ReceiptState]{}, burnt: &btree.Map[string, struct{}]{}, spends: &btree.Map[string, *ReceiptState]{},
		frozen: &btree.Map[string, *frozenState]{}, resolved: &btree.Map[string, *Resolved]{},
		seen: &btree.Map[string, Covered]{}, rewrites: &btree.Map[string, *[]*RewrittenState]{},
		rewritten: &btree.Map[string, struct{}]{}, acks: &btree.Map[string, *Acknowledged]{},
		verdicts: &btree.Map[string, *verdict]{},
	}
}

// snapshot is the state as it is now. It costs the same however much there is:
// both sides share every node of every tree until one of them changes it.
func (s *State) snapshot() *State {
	c := *s
	c.reviews, c.opened, c.live, c.rejected = s.reviews.Copy(), s.opened.Copy(), s.live.Copy(), s.rejected.Copy()
	c.holds, c.holdIDs, c.consumed = s.holds.Copy(), s.holdIDs.Copy(), s.consumed.Copy()
	c.receipts, c.burnt, c.spends = s.receipts.Copy(), s.burnt.Copy(), s.spends.Copy()
	c.frozen, c.resolved = s.frozen.Copy(), s.resolved.Copy()
	c.seen, c.rewrites, c.rewritten, c.acks = s.seen.Copy(), s.rewrites.Copy(), s.rewritten.Copy(), s.acks.Copy()
	c.verdicts = s.verdicts.Copy()
	c.ignored = slices.Clip(s.ignored)
	return &c
}

// Lines is how many lines the log has.
func (s *State) Lines() int64 { return s.lines }

// Sig is the signature of the last line, "" for an empty log.
func (s *State) Sig() string { return s.sig }

// First is the signature of the first line, which names the log; "" for an empty
// one.
func (s *State) First() string { return s.first }

// At is the time of the last line; zero for an empty log.
func (s *State) At() time.Time { return s.at }

// Torn is how many bytes follow the last whole line: what a crash left of a line,
// or of several that were written together. The next writer sets them aside.
func (s *State) Torn() int64 { return s.torn }

// Policy is the last policy line, nil when there is none.
func (s *State) Policy() *Policy { return s.policy }

// MannedPolicy is the last policy line that names operators, nil when none does.
// Whoever may write to the log can add one that names none, so it is this one that
// people's commands go by.
func (s *State) MannedPolicy() *Policy { return s.manned }

// Ignored is an act that stays in the chain and changes nothing.
type Ignored struct {
	Seq  int64
	Type string
	Why  string // one sentence

	code errcode.Code
}

// Ignored lists the acts that change nothing, oldest first: at most the last
// hundred, and how many there are.
func (s *State) Ignored() (last []Ignored, total int) { return s.ignored, s.ignoredTotal }

// The states of a review, as Status spells them.
const (
	StatusPending  = "pending"
	StatusApproved = "approved"
	StatusRejected = "rejected"
	StatusExpired  = "expired"
	StatusUsed     = "used"
	StatusRevoked  = "revoked"
)

// ReviewState is a review and what became of it.
type ReviewState struct {
	Opened
	Seq       int64     // of the opened line
	At        time.Time // of the opened line
	OpenedSig string
	Actor     string     // who asked
	Decisions []Decision // those that count, oldest first
	Used      *UsedBy    // what the approval was spent on
	ReceiptID string     // of the receipt that was issued for it, "" for none
	UsedAt    time.Time

	status   string    // pending, approved, rejected, used, revoked
	since    time.Time // when the status began, by the most cautious reading
	deadline time.Time // of pending and approved
	lapsed   bool      // a line was written at a time at which it had expired
	stuck    time.Time // rejected: no earlier than this, whatever the clock said
}

// Decision is a decision on a review that counts.
type Decision struct {
	Decided         // without signature and key where no operator's key verified them
	Operator string // whose key signed it, as the policy names the key; "" for unsigned
	Hash     string // of the line's own members, see [Hash]
	Seq      int64
	At       time.Time
	Actor    string
}

// Last is the last decision, nil when there is none.
func (r *ReviewState) Last() *Decision {
	if len(r.Decisions) == 0 {
		return nil
	}
	return &r.Decisions[len(r.Decisions)-1]
}

// skew is how far a decision may lie ahead of the clock that judges it. Beyond
// that the clock was set back, and nothing lasts longer because of it.
const skew = time.Minute

// Status is one of the Status words, at a time.
func (r *ReviewState) Status(now time.Time) string {
	if (r.status == StatusPending || r.status == StatusApproved) && r.expired(now) {
		return StatusExpired
	}
	return r.status
}

func (r *ReviewState) expired(now time.Time) bool {
	if r.lapsed || !now.Before(r.deadline) {
		return true
	}
	return r.status == StatusApproved && now.Add(skew).Before(r.since)
}

// ExpiresAt is when the review stops being pending, or the approval usable: an
// approval lasts as long from its decision as the review had from its opening, and
// so does a review that was reopened (guard contract, section 4). It is that of
// the opened line for a review that was never approved or reopened.
func (r *ReviewState) ExpiresAt(time.Time) time.Time {
	if r.deadline.IsZero() {
		return r.Opened.ExpiresAt
	}
	return r.deadline
}

// Review is the review of an id; nil when there is none.
func (s *State) Review(id string) *ReviewState {
	r, _ := s.reviews.Get(id)
	return r
}

// FindReviews gives the reviews whose id begins with prefix, in the order of ids;
// at most two of them when prefix is not a whole id, which is enough to tell that
// it is ambiguous.
func (s *State) FindReviews(prefix string) []*ReviewState {
	var found []*ReviewState
	s.reviews.Ascend(prefix, func(id string, r *ReviewState) bool {
		if !strings.HasPrefix(id, prefix) {
			return false
		}
		found = append(found, r)
		return id != prefix && len(found) < 2
	})
	return found
}

// Reviews yields every review, newest first.
func (s *State) Reviews() iter.Seq[*ReviewState] { return s.ReviewsBefore(math.MaxInt64) }

// ReviewsBefore yields the reviews opened before the line seq, newest first.
func (s *State) ReviewsBefore(seq int64) iter.Seq[*ReviewState] {
	return func(yield func(*ReviewState) bool) {
		s.opened.Descend(seq-1, func(_ int64, r *ReviewState) bool { return yield(r) })
	}
}

// PendingFor is the pending review of the same intent, nil when there is none.
func (s *State) PendingFor(in Intent, now time.Time) *ReviewState {
	return s.liveFor(in, StatusPending, now, anybody)
}

// UsableFor is the oldest approval of the same intent that is neither used nor
// expired; nil when there is none.
func (s *State) UsableFor(in Intent, now time.Time) *ReviewState {
	return s.liveFor(in, StatusApproved, now, anybody)
}

// AskedFor is the oldest pending review of the same intent, or else the oldest
// approval of it that is neither used nor expired, that one actor has asked for; nil
// when there is neither.
func (s *State) AskedFor(in Intent, actor string, now time.Time) *ReviewState {
	own := func(r *ReviewState) bool { return r.Actor == actor }
	if r := s.liveFor(in, StatusPending, now, own); r != nil {
		return r
	}
	return s.liveFor(in, StatusApproved, now, own)
}

func anybody(*ReviewState) bool { return true }

func (s *State) liveFor(in Intent, status string, now time.Time, whose func(*ReviewState) bool) (found *ReviewState) {
	key := intentKey(in)
	s.live.Ascend(key, func(k string, r *ReviewState) bool {
		if !strings.HasPrefix(k, key) {
			return false
		}
		if r.Status(now) == status && whose(r) {
			found = r
		}
		return found == nil
	})
	return found
}

// Pending counts the pending reviews of one actor.
func (s *State) Pending(actor string, now time.Time) int {
	n := 0
	s.live.Scan(func(_ string, r *ReviewState) bool {
		if r.Actor == actor && r.Status(now) == StatusPending {
			n++
		}
		return true
	})
	return n
}

// Approvals gives the approvals that are neither used nor expired, in the order in
// which they were given.
func (s *State) Approvals(now time.Time) []*ReviewState {
	var all []*ReviewState
	s.live.Scan(func(_ string, r *ReviewState) bool {
		if r.Status(now) == StatusApproved {
			all = append(all, r)
		}
		return true
	})
	slices.SortFunc(all, func(a, b *ReviewState) int { return cmp.Compare(a.Last().Seq, b.Last().Seq) })
	return all
}

// Waiting is how many reviews are pending, and when the oldest of them was opened.
func (s *State) Waiting(now time.Time) (n int, oldest time.Time) {
	s.live.Scan(func(_ string, r *ReviewState) bool {
		if r.Status(now) == StatusPending {
			if n++; n == 1 || r.At.Before(oldest) {
				oldest = r.At
			}
		}
		return true
	})
	return n, oldest
}

// Rejections yields the reviews that were rejected within the last hours and not
// reopened, the latest rejection first.
func (s *State) Rejections(now time.Time, hours int) iter.Seq[*ReviewState] {
	window := time.Duration(hours) * time.Hour
	return func(yield func(*ReviewState) bool) {
		s.rejected.Reverse(func(_ int64, r *ReviewState) bool {
			// The clock may have been behind when it was rejected, and been set right
			// since: then the lines before it say that it was no earlier than they.
			sticks := now.Sub(r.since) < window || !now.Before(r.stuck) && now.Sub(r.stuck) < window
			return !sticks || yield(r)
		})
	}
}

// HoldState is a hold that no line has ended.
type HoldState struct {
	Held
	Seq   int64
	At    time.Time
	Actor string

	base time.Time // no earlier than this was it made, whatever the clock said
}

// Active reports whether the hold still reserves its amount at a time.
func (h *HoldState) Active(now time.Time) bool {
	if now.Before(h.ExpiresAt) {
		return true
	}
	// A clock that was behind made the hold and has been set right since.
	return !now.Before(h.base) && now.Before(h.base.Add(h.ExpiresAt.Sub(h.At)))
}

// Holds gives the active holds, oldest first.
func (s *State) Holds(now time.Time) []*HoldState {
	var all []*HoldState
	s.holds.Scan(func(_ int64, h *HoldState) bool {
		if h.Active(now) {
			all = append(all, h)
		}
		return true
	})
	return all
}

// Unended gives the holds that no line has ended, expired ones too as long as they
// are kept, oldest first: a payment that was made while one lasted is its payment,
// whenever somebody looks.
func (s *State) Unended() iter.Seq[*HoldState] {
	return func(yield func(*HoldState) bool) {
		s.holds.Scan(func(_ int64, h *HoldState) bool { return yield(h) })
	}
}

// Hold is the active hold of an id; nil when it is not known or has ended.
func (s *State) Hold(id string, now time.Time) *HoldState {
	seq, ok := s.holdIDs.Get(id)
	if !ok {
		return nil
	}
	if h, ok := s.holds.Get(seq); ok && h.Active(now) {
		return h
	}
	return nil
}

// Consumed is how many payments of an operation have ended a hold or used up an
// approval. A payment does so once (guard contract, section 4).
func (s *State) Consumed(ref Ref) int {
	n, _ := s.consumed.Get(digest(ref.key()))
	return int(n)
}

type frozenState struct {
	Frozen
	at time.Time
}

// ScopeAll is the scope of a freeze of every counterparty.
const ScopeAll = "all"

// Frozen gives the freeze that is in force for any of the names: of everything
// first, then in the order of names.
func (s *State) Frozen(names []string) (Frozen, bool) {
	if f, ok := s.frozen.Get(ScopeAll); ok {
		return f.Frozen, true
	}
	for _, name := range names {
		if f, ok := s.frozen.Get(name); ok {
			return f.Frozen, true
		}
	}
	return Frozen{}, false
}

// AllFrozen lists every freeze in force, in the order of scopes.
func (s *State) AllFrozen() []Frozen {
	var all []Frozen
	s.frozen.Scan(func(_ string, f *frozenState) bool {
		all = append(all, f.Frozen)
		return true
	})
	return all
}

// Resolution is what a person found out about an operation; nil when nobody has,
// when it was taken back, or when the run was rewritten since.
func (s *State) Resolution(ref Ref) *Resolved {
	r, _ := s.resolved.Get(ref.key())
	return r
}

// ClosedBy names the line that last changed what people resolved or made history of:
// where it is the same, so is all of that.
func (s *State) ClosedBy() string { return s.closedBy }

// Resolutions yields what people found out, by run.
func (s *State) Resolutions() iter.Seq[*Resolved] {
	return func(yield func(*Resolved) bool) {
		s.resolved.Scan(func(_ string, r *Resolved) bool { return yield(r) })
	}
}

// ResolutionsOf yields what people found out about the operations of one run.
func (s *State) ResolutionsOf(run string) iter.Seq[*Resolved] {
	return func(yield func(*Resolved) bool) {
		prefix := run + "\x00"
		s.resolved.Ascend(prefix, func(k string, r *Resolved) bool { return strings.HasPrefix(k, prefix) && yield(r) })
	}
}

// Baseline is the newest baseline, nil when there is none. It must not be changed.
func (s *State) Baseline() *Baseline { return s.baseline }

// BaselineOf says up to where a run is history. A run that was rewritten since the
// baseline is not: what is in it now is not what the person had seen.
func (s *State) BaselineOf(run string) (Covered, bool) {
	if _, again := s.rewritten.Get(run); again {
		return Covered{}, false
	}
	c, ok := s.baselineRuns[run]
	return c, ok
}

// Seen says how far a run had been indexed when that was last written down. A run
// that was rewritten since is not seen until it is written down again.
func (s *State) Seen(run string) (Covered, bool) { return s.seen.Get(run) }

// SeenRuns yields every run that was seen, in the order of ids.
func (s *State) SeenRuns() iter.Seq[Covered] {
	return func(yield func(Covered) bool) {
		s.seen.Scan(func(_ string, c Covered) bool { return yield(c) })
	}
}

// SeenAt is the time of the last line that says what was seen; zero when none does.
func (s *State) SeenAt() time.Time { return s.seenAt }

// RewrittenState is vanished evidence that nobody has acknowledged.
type RewrittenState struct {
	Rewritten
	Seq int64
	At  time.Time
}

// RewrittenRuns yields the runs whose evidence vanished or changed and that nobody
// has acknowledged since, in the order of ids, each with what happened to it,
// oldest first.
func (s *State) RewrittenRuns() iter.Seq2[string, []*RewrittenState] {
	return func(yield func(string, []*RewrittenState) bool) {
		s.rewrites.Scan(func(run string, all *[]*RewrittenState) bool { return yield(run, *all) })
	}
}

// Rewritten is what happened to the evidence of one run since it was last
// acknowledged, oldest first.
func (s *State) Rewritten(run string) []*RewrittenState {
	all, ok := s.rewrites.Get(run)
	if !ok {
		return nil
	}
	return *all
}

// Acknowledged says up to which offset the damage of a run was accepted. It is
// false again once the run is rewritten.
func (s *State) Acknowledged(run string) (through int64, ok bool) {
	a, ok := s.acks.Get(run)
	if !ok {
		return 0, false
	}
	return a.Through, true
}

// verdictsLast is for how long the same verdict is not written again.
const verdictsLast = time.Minute

// RecentVerdict reports whether the same intent was allowed or blocked by the same
// rule within the last minute: kind is "allowed" or "blocked", rule is "" for the
// former.
func (s *State) RecentVerdict(kind string, in Intent, rule string, now time.Time) bool {
	v, ok := s.verdicts.Get(verdictKey(kind, in, rule))
	return ok && !v.at.After(now) && now.Sub(v.at) < verdictsLast
}

// key orders references by run. A run is named by a file, so it holds no NUL.
func (r Ref) key() string {
	if r.Operation == nil {
		return r.Run + "\x00n"
	}
	return r.Run + "\x00s" + *r.Operation
}

// digest stands for a text in maps that grow with the log. Half of a SHA-256 is
// enough that no two texts share one.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		// Each part ends where it says, so that no two lists read the same.
		var n [8]byte
		for i := range n {
			n[i] = byte(len(p) >> (8 * i))
		}
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return string(h.Sum(nil)[:16])
}

// intentKey is the same for two intents that are the same: all but the template
// (guard contract, section 4).
func intentKey(in Intent) string {
	return digest(append([]string{in.Amount, in.Asset, in.Resource, in.Typed}, in.Names...)...)
}

func verdictKey(kind string, in Intent, rule string) string {
	return digest(kind, rule, intentKey(in))
}

// Same reports whether two intents are the same: all but the template.
func (in Intent) Same(other Intent) bool {
	return in.Amount == other.Amount && in.Asset == other.Asset && in.Resource == other.Resource &&
		in.Typed == other.Typed && slices.Equal(in.Names, other.Names)
}
