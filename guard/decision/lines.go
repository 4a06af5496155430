package decision

import (
	"encoding/json"
	"time"
)

// Ref addresses one operation in a line. A null operation id is the operation
// whose id is JSON null (trace contract, section 12.7). Ids that JSON text cannot
// hold are written in the form [EncodeID] gives.
type Ref struct {
	Run       string  `json:"run_id"`
	Operation *string `json:"operation_id"`
}

// Envelope is what every line has (guard contract, section 7).
type Envelope struct {
	Seq   int64     // from 1
	At    time.Time // UTC, whole milliseconds
	Type  string
	Actor string // HTTP subject; "" on stdio and the command line
	More  int64  // lines of the same write that follow this one; absent when 0
	Prev  string // sig of the line before, "" in the first
	Sig   string
}

// Body is one of the types below, by value or by pointer.
type Body interface{ kind() string }

// Words of the lines.
const (
	Approved = "approved"
	Rejected = "rejected"
	Revoked  = "revoked"
	Reopened = "reopened"

	WhyReleased = "released"
	WhyPaid     = "paid"
	WhyExpired  = "expired"

	Settled = "settled"
	Failed  = "failed"

	Shrunk   = "shrunk"
	Replaced = "replaced"
	Edited   = "edited"
	Removed  = "removed"

	// Kinds of review.
	KindPayment  = "payment"
	KindToolCall = "tool_call"
)

// Intent is what a payment is about. Two intents are the same when all but the
// template are (guard contract, section 4).
type Intent struct {
	Names    []string `json:"names"`           // canonical, sorted, no name twice
	Amount   string   `json:"amount"`          // atomic units; "" when it could not be read
	Asset    string   `json:"asset"`           // asset key; "" when it is not known
	Resource string   `json:"resource"`        // canonical; "" when none was named
	Template string   `json:"template"`        // additional template; "" for none
	Typed    string   `json:"typed,omitempty"` // amount and asset as typed, where they could not be read
}

// Reason is a rule that fired, as it was shown.
type Reason struct {
	Rule     string `json:"rule"`
	Detail   string `json:"detail"`
	Evidence []Ref  `json:"evidence,omitempty"`       // at most 20
	Total    int    `json:"evidence_total,omitempty"` // only where it was cut
}

// Fact is one thing a person was shown, and where it comes from.
type Fact struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"` // "agent" typed it; "trace" it was seen there; "policy"; "market" an instance said it; "log" decisions hold it
}

// Shown is what a limit rule had counted when it was shown: an approval waives
// the rule up to this.
type Shown struct {
	Rule       string `json:"rule"`
	Spent      string `json:"spent"`                // atomic units
	Held       string `json:"held"`                 // atomic units
	Count      int    `json:"count"`                // payments and holds
	Unreadable int    `json:"unreadable,omitempty"` // payments that the sums leave out
}

// Made is what payments an operation had when it was shown as evidence.
type Made struct {
	Ref
	Payments int64  `json:"payments"`
	Newest   *int64 `json:"newest,omitempty"` // unix milliseconds; nil where there is none, or a time is unreadable
}

// Covered is how far a run had been indexed.
type Covered struct {
	Run     string `json:"run_id"`
	Covered int64  `json:"covered"` // bytes
	Events  int64  `json:"events"`
	CRC     uint32 `json:"crc"` // crc32c of the covered bytes
}

// Call is the tool call a review of the kind tool_call is about: what will run when
// a person approves it (approvals contract, section 9.7b).
type Call struct {
	Tool     string `json:"tool"`
	Resource string `json:"resource"` // or the scope of a tool that spends
	Risk     string `json:"risk"`
	// Arguments are what the tool will be given, in canonical JSON, the host's part
	// among them. What the policy says to redact stands there as a hash.
	Arguments     string `json:"arguments"`
	ArgsHash      string `json:"args_hash"`
	RequestHash   string `json:"request_hash"` // of all that an approval is bound to
	Policy        string `json:"policy"`       // its name
	PolicyVersion string `json:"policy_version"`
	PolicyHash    string `json:"policy_hash"` // of its content: a version is only a word
	Canon         string `json:"canon"`       // the rule the hashes were made by
	TTL           int64  `json:"ttl_ms"`      // for how long a receipt will be good
	Spend         *Spend `json:"spend,omitempty"`
}

// Spend is the money of a tool call, as a spend gate sees it.
type Spend struct {
	Gate       string `json:"gate"` // whose day it counts in: the name of the gate
	Action     string `json:"action"`
	Asset      string `json:"asset"`
	Notional   string `json:"notional"`             // display units, decimal text
	Confidence string `json:"confidence,omitempty"` // decimal text
}

// Operator is a key that may loosen.
type Operator struct {
	Name      string    `json:"name"`
	PublicKey string    `json:"publicKey"` // base64 of the 32 bytes of an Ed25519 key
	Until     time.Time `json:"-"`         // zero: not retired
}

// Signed is what a signed act has beside its own members. SignedAt is covered by
// the signature, and each signature counts once: a copied line permits nothing.
type Signed struct {
	DecidedBy string `json:"decided_by,omitempty"`
	SignedAt  string `json:"signed_at,omitempty"`
	Signature string `json:"signature,omitempty"` // base64
	Key       string `json:"key,omitempty"`       // the operator's public key
}

// The bodies, one a type of line (guard contract, section 7).
type (
	// Policy says which policy judges from here on.
	Policy struct {
		Path      string     `json:"path,omitempty"`
		Hash      string     `json:"policy_hash"`
		Operators []Operator `json:"operators"`
		Version   string     `json:"version"`
	}
	// Opened asks a person about a payment or a tool call.
	Opened struct {
		ReviewID     string    `json:"review_id"`
		Kind         string    `json:"kind"` // payment, tool_call
		Intent       Intent    `json:"intent"`
		Counterparty string    `json:"counterparty"` // as shown
		Amount       string    `json:"amount"`       // as shown, display units
		Asset        string    `json:"asset"`        // as shown
		PayTo        string    `json:"pay_to,omitempty"`
		Resource     string    `json:"resource,omitempty"`
		Network      string    `json:"network,omitempty"`
		Facts        []Fact    `json:"facts"`
		Shown        []Shown   `json:"shown,omitempty"`
		Made         []Made    `json:"made,omitempty"` // operations that are evidence
		Reasons      []Reason  `json:"reasons"`
		ExpiresAt    time.Time `json:"expires_at"`
		PolicyHash   string    `json:"policy_hash"`
		Call         *Call     `json:"call,omitempty"` // of a tool_call
	}
	// Decided is a person's decision on a review.
	Decided struct {
		ReviewID string `json:"review_id"`
		Decision string `json:"decision"` // approved, rejected, revoked, reopened
		Note     string `json:"note,omitempty"`
		Signed
	}
	// ApprovalUsed says what an approval was spent on.
	ApprovalUsed struct {
		ReviewID string `json:"review_id"`
		By       UsedBy `json:"by"`
	}
	// Allowed and Blocked record a verdict.
	Allowed struct {
		Intent     Intent  `json:"intent"`
		PolicyHash string  `json:"policy_hash"`
		Checked    Checked `json:"checked"`
		ReviewID   string  `json:"review_id,omitempty"`
	}
	Blocked struct {
		Intent     Intent `json:"intent"`
		Rule       string `json:"rule"`
		Detail     string `json:"detail"`
		PolicyHash string `json:"policy_hash"`
	}
	// Held reserves an amount.
	Held struct {
		HoldID    string    `json:"hold_id"`
		Intent    Intent    `json:"intent"`
		ExpiresAt time.Time `json:"expires_at"`
		ReviewID  string    `json:"review_id,omitempty"` // the approval it redeems
		// Before are operations with a payment like this one that was on record when
		// the hold was made: what was paid already ends no hold. One is named for
		// each such payment.
		Before []Ref `json:"before,omitempty"`
	}
	// Released ends a hold.
	Released struct {
		HoldID string `json:"hold_id"`
		Why    string `json:"why"` // released, paid, expired
		By     *Ref   `json:"by,omitempty"`
		Note   string `json:"note,omitempty"`
	}
	// Frozen and Unfrozen: while a scope is frozen every check of it blocks.
	Frozen struct {
		Scope  string `json:"scope"` // "all" or a canonical name
		Reason string `json:"reason"`
	}
	Unfrozen struct {
		Scope  string `json:"scope"`
		Reason string `json:"reason,omitempty"`
		Signed
	}
	// Resolved is what a person found out about an operation; Unresolved takes
	// it back.
	Resolved struct {
		Ref
		Outcome string `json:"outcome"`          // settled, failed
		Amount  string `json:"amount,omitempty"` // atomic units of the operation's asset
		Asset   string `json:"asset,omitempty"`  // asset key of Amount
		Time    string `json:"time,omitempty"`
		// Payments is how many the operation had then: paid again, it is as if nobody
		// had said anything. Lines of earlier versions cover whatever comes. Newest is
		// when the newest of them was made, in unix milliseconds, where every time can be
		// read: a payment may also take the place of one that was there.
		Payments *int64 `json:"payments,omitempty"`
		Newest   *int64 `json:"newest,omitempty"`
		Note     string `json:"note"`
		Signed
	}
	Unresolved struct {
		Ref
		Note string `json:"note,omitempty"`
		Signed
	}
	// Baseline makes history of what is open or damaged until now.
	Baseline struct {
		Through time.Time `json:"through"`
		Runs    []Covered `json:"runs"`
		Open    int       `json:"open"`
		Damaged int       `json:"damaged"`
		Note    string    `json:"note"`
		Signed
	}
	// Seen remembers what the index covered; Rewritten says that it has vanished
	// or changed since.
	Seen struct {
		Runs []Covered `json:"runs"`
	}
	Rewritten struct {
		Run          string `json:"run_id"`
		Covered      int64  `json:"covered"`
		EventsBefore int64  `json:"events_before"`
		EventsAfter  int64  `json:"events_after"`
		How          string `json:"how"` // shrunk, replaced, edited, removed
	}
	// Acknowledged accepts the damage of a run so far.
	Acknowledged struct {
		Run     string `json:"run_id"`
		Through int64  `json:"through_offset"`
		Faults  int64  `json:"faults"`
		Note    string `json:"note"`
		Signed
	}
	// Denied records that a tool of the approvals refused something, before the one
	// who asked is told (approvals contract, section 8.4).
	Denied struct {
		Tool       string `json:"tool"`             // whose refusal it is
		Target     string `json:"target,omitempty"` // the tool that was to be called
		Scope      string `json:"scope,omitempty"`  // its resource or scope
		ReasonCode string `json:"reason_code"`
		Detail     string `json:"detail"`
		ArgsHash   string `json:"args_hash,omitempty"`
		ReceiptID  string `json:"receipt_id"`          // of the refusal
		Presented  string `json:"presented,omitempty"` // id of the receipt that was refused
		ReviewID   string `json:"review_id,omitempty"`
		Policy     string `json:"policy,omitempty"`
		Burnt      string `json:"burnt,omitempty"` // Presented, where the refusal used it up
		Canon      string `json:"canon"`
	}
	// Authorized holds a receipt that was issued. Where no such line is, there is no
	// receipt, whatever bears a signature (approvals contract, section 9.4).
	Authorized struct {
		ReceiptID   string    `json:"receipt_id"` // its nonce
		ReceiptHash string    `json:"receipt_hash"`
		Receipt     string    `json:"receipt"` // the whole of it, canonical JSON
		Tool        string    `json:"tool"`
		Scope       string    `json:"scope"` // resource or scope
		ArgsHash    string    `json:"args_hash"`
		RequestHash string    `json:"request_hash"`
		Approver    string    `json:"approver"` // name of the key that signed it
		ReviewID    string    `json:"review_id,omitempty"`
		Spend       *Spend    `json:"spend,omitempty"`
		ExpiresAt   time.Time `json:"expires_at"`
		Canon       string    `json:"canon"`
	}
	// Executed uses a receipt up: it is written before anybody is told that the
	// call may be made.
	Executed struct {
		ReceiptID   string `json:"receipt_id"`
		ReceiptHash string `json:"receipt_hash"`
		Tool        string `json:"tool"`
		Scope       string `json:"scope"`
		ArgsHash    string `json:"args_hash"`
		ReviewID    string `json:"review_id,omitempty"`
		Canon       string `json:"canon"`
	}
	// Recovered and Adopted begin a new log behind a file that was set aside.
	Recovered struct {
		File    string `json:"file"`
		SHA256  string `json:"sha256"`
		Lines   int64  `json:"lines"`
		Carried int    `json:"carried"`
		Signed
	}
	Adopted struct {
		File    string `json:"file"`
		SHA256  string `json:"sha256"`
		Lines   int64  `json:"lines"`
		Carried int    `json:"carried"`
		Signed
	}
)

// UsedBy is what an approval was spent on: a hold, a payment in the trace, or a
// tool call that was made on a receipt.
type UsedBy struct {
	HoldID    string  `json:"hold_id,omitempty"`
	ReceiptID string  `json:"receipt_id,omitempty"`
	Run       string  `json:"run_id,omitempty"`
	Operation *string `json:"operation_id,omitempty"`
}

// Checked says how much history a verdict covers.
type Checked struct {
	Events  int64  `json:"events"`
	Runs    int64  `json:"runs"`
	Through string `json:"through"` // the instant of the question, RFC 3339 UTC
}

func (Policy) kind() string       { return "policy" }
func (Opened) kind() string       { return "opened" }
func (Decided) kind() string      { return "decided" }
func (ApprovalUsed) kind() string { return "approval_used" }
func (Allowed) kind() string      { return "allowed" }
func (Blocked) kind() string      { return "blocked" }
func (Held) kind() string         { return "held" }
func (Released) kind() string     { return "released" }
func (Frozen) kind() string       { return "frozen" }
func (Unfrozen) kind() string     { return "unfrozen" }
func (Resolved) kind() string     { return "resolved" }
func (Unresolved) kind() string   { return "unresolved" }
func (Baseline) kind() string     { return "baseline" }
func (Seen) kind() string         { return "seen" }
func (Rewritten) kind() string    { return "rewritten" }
func (Acknowledged) kind() string { return "acknowledged" }
func (Denied) kind() string       { return "denied" }
func (Authorized) kind() string   { return "authorized" }
func (Executed) kind() string     { return "executed" }
func (Recovered) kind() string    { return "recovered" }
func (Adopted) kind() string      { return "adopted" }

// stampForm is the one form of an instant in the log: UTC, three digits of
// milliseconds.
const stampForm = "2006-01-02T15:04:05.000Z"

func stamp(t time.Time) string { return t.UTC().Format(stampForm) }

// whole is an instant as the log can hold it.
func whole(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// Instants inside lines have the form of the line's own, which encoding/json reads
// but does not write. A field shadows the one of its name in an embedded struct.

// MarshalJSON writes expires_at in the form of the log.
func (o Opened) MarshalJSON() ([]byte, error) {
	type inner Opened
	return json.Marshal(struct {
		inner
		ExpiresAt string `json:"expires_at"`
	}{inner(o), stamp(o.ExpiresAt)})
}

// MarshalJSON writes expires_at in the form of the log.
func (h Held) MarshalJSON() ([]byte, error) {
	type inner Held
	return json.Marshal(struct {
		inner
		ExpiresAt string `json:"expires_at"`
	}{inner(h), stamp(h.ExpiresAt)})
}

// MarshalJSON writes expires_at in the form of the log.
func (a Authorized) MarshalJSON() ([]byte, error) {
	type inner Authorized
	return json.Marshal(struct {
		inner
		ExpiresAt string `json:"expires_at"`
	}{inner(a), stamp(a.ExpiresAt)})
}

// MarshalJSON writes through in the form of the log.
func (b Baseline) MarshalJSON() ([]byte, error) {
	type inner Baseline
	return json.Marshal(struct {
		inner
		Through string `json:"through"`
	}{inner(b), stamp(b.Through)})
}
