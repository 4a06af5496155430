package inbox

import (
	"context"
	"time"
)

// Tone says how a line is painted. Nothing is said by it alone.
type Tone int

// The tones.
const (
	Plain Tone = iota
	Strong
	Good
	Warn
	Bad
)

// Block is a row of a page, or a paragraph of it where it has no label.
type Block struct {
	Label string
	Lead  string // in front of a paragraph, which hangs behind it
	Text  string // "" is an empty line
	Mark  string // where a fact comes from
	Tone  Tone
}

// Card is one review that waits.
type Card struct {
	ID      string
	Expires time.Time
	Facts   string // equal as long as it is the same in every fact
	Amount  string // how much is paid, with its asset
	To, At  string // the account, in full; the host and the network
	Whom    string // "to ACCOUNT at HOST on NETWORK", for a sentence
	Why     string // the rules that fired
	Payee   string // equal for reviews of the same payee
	Body    []Block
	// Decisive are the rows a decision is repeated with, amount and payee.
	Decisive []Block
	// Open are the operations it is asked about, which a person may know more of.
	Open []Operation
}

// Operation is one whose money is not accounted for.
type Operation struct {
	Name    string // run and operation, in full; no two have the same
	Summary string // how much and when
	To      string
	As      string // what it counts as
	Body    []Block
	Ref     any // for the desk
}

// Want says what is looked for beside the reviews that wait.
type Want struct {
	Follow   []string // reviews whose end is asked for, if they no longer wait
	Open     bool     // open operations
	Overview bool
}

// Scene is how everything stands at one moment.
type Scene struct {
	At     time.Time
	Cards  []Card
	Unread int // further reviews that wait and are not among Cards
	// Ends tells of reviews that were followed and wait no longer what became of them.
	Ends map[string]string
	// Alerts are what a person has to know before anything else.
	Alerts []string
	// Key is the file of the key an approval has to be signed with, "" for none.
	// KeyFault is why that key cannot sign.
	Key, KeyFault string
	// Open are open operations, nil where they were not asked for, and OpenMore how
	// many further ones there are.
	Open     []Operation
	OpenMore int
	Overview []Block
}

// Act is a decision about reviews.
type Act struct {
	Decision string // approved, rejected, revoked
	IDs      []string
	Facts    []string // of the cards that were shown, in the order of IDs
	Note     string
	Freeze   bool // with a rejection: block its payee as well
}

// Desk is what the inbox asks and does. Its methods are called one at a time, but
// for Look, which may run beside another. What they give back is shown as it is; an
// error says that nothing was done.
type Desk interface {
	Look(ctx context.Context, w Want) (*Scene, error)
	Decide(ctx context.Context, a Act) ([]Block, error)
	Freeze(ctx context.Context, reason string) ([]Block, error)
	Resolve(ctx context.Context, all []Operation, outcome, note string) ([]Block, error)
	// Explain is what is on record of an operation.
	Explain(ctx context.Context, op Operation) ([]Block, error)
	// Unlock opens the key for as long as the desk is open.
	Unlock(ctx context.Context, passphrase []byte) error
}
