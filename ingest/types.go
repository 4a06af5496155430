package ingest

import (
	"context"
	"log/slog"
	"time"

	"github.com/settlewatch/settlewatch/assemble"
)

// Options says which trace root an Indexer serves and how.
type Options struct {
	Root         string // the trace root, e.g. ".trace"; must exist
	Index        string // index file; "" means <guard dir>/index-v<schema>.db
	GuardDir     string // "" means <root>/guard
	TemplatesDir string // "" means <root>/templates
	Now          func() time.Time
	// ReadFile reads a template named by path; nil refuses paths.
	ReadFile func(path string) ([]byte, error)
	Log      *slog.Logger // nil discards
	// Rewritten is told before what is indexed of a run is cleared because bytes of
	// it have vanished or changed, the whole file with them or not: never with an
	// index transaction open, and never with anything held that another question
	// waits for, so it may block on a lock of its own. The context is that of the
	// question which found it. It may be told twice of one rewrite, and must ask the
	// Indexer for nothing but a Snapshot or a Prefix. nil tells nobody.
	Rewritten func(context.Context, Rewrite)
}

// Ref addresses one operation. Ids are WTF-8 text; Null addresses the
// operation whose id is JSON null (trace contract, section 12.7).
type Ref struct {
	Run       string
	Operation string
	Null      bool
	// Unassigned: of a link only, the other half is an answer in no operation.
	Unassigned bool
}

// Query is what list_operations and `list` ask.
type Query struct {
	Template     string // reference; "" means x402-buyer
	Run          string // "" = all runs, "latest", "run:<id>" or an id
	Completeness string // "", "full", "partial"
	Counterparty string // "" or an address, host or URL (its host counts)
	Settlement   string // "", "settled", "failed", "unknown", "pending", "none"
	Limit        int    // 1..; 0 means 50
	Cursor       string
	Oldest       bool // oldest first, for people who look for what was forgotten
}

// Row is one operation of a list.
type Row struct {
	Ref
	Template      string
	Completeness  string // "full" or "partial"
	MissingStages []string
	Exceptions    int
	LastEventAt   string
	Counterparty  string // canonical payee address, else host; "" unknown
	Amount        string // atomic units, decimal text; "" unknown
	Asset         string // asset key (CAIP-2 "/" address) or ""
	Settlement    string // settled, failed, unknown, pending, none
	Linked        *Ref   // trace contract, section 12.8
	Blind         string // reason, or "" (section 12.9)
	cursor        string
}

// Damage is one fault of a run, reported and served around.
type Damage struct {
	RunID  string
	Line   int64 // 1-based; 0 when the whole entry cannot be read
	Offset int64
	Reason string // a short sentence
}

// Page is one page of a list.
type Page struct {
	Template     string // name the template declares
	Operations   []Row
	RunsScanned  int
	NextCursor   string
	DamagedRuns  []Damage // at most 20: the first fault of each damaged run
	DamagedTotal int      // damaged runs in all
}

// Cut keeps the first n rows and sets NextCursor so that the walk goes on
// after them.
func (p *Page) Cut(n int) {
	if n < len(p.Operations) && n > 0 {
		p.NextCursor = p.Operations[n-1].cursor
		p.Operations = p.Operations[:n]
	}
}

// Receipt is an operation's receipt with what the index adds to it.
type Receipt struct {
	*assemble.Receipt
	Ref
	Template   *assemble.Resolved
	Damaged    bool
	Settlement string
	Linked     *Ref
	Blind      string

	Counterparty, Amount, Asset, Resource string // as in a Row; "" unknown
}

// Progress is told while a long pass runs; Bytes of Total have been read.
type Progress struct {
	Bytes, Total int64
	Runs         int
	Events       int64
}

// Counts is what an index holds.
type Counts struct {
	Runs, Operations, Events, Payments, Faults, Bytes int64
}

// Status is what `status` shows.
type Status struct {
	Root, Index string // resolved paths
	Private     bool   // the index at its usual place could not be used; a private one serves
	Schema      int64
	Counts      Counts
	IndexBytes  int64
	Damaged     []Damage // the first fault of each damaged run, at most 1,000
	DamagedRuns int
	TornRuns    []Torn // runs that end in an incomplete line
	Newest      string // id of the latest run
}

// Torn is an unfinished last line.
type Torn struct {
	RunID string
	Bytes int64
	Since time.Time // when the file last changed
}

// FsckReport is the outcome of comparing the live index with a fresh one.
type FsckReport struct {
	Damaged     int  // runs with damage; the index may be sound all the same
	Private     bool // no index is kept at the usual place: a private one was compared
	Counts      Counts
	Differences []string // empty: equal, row by row
}

// Await is what await_operation answers.
type Await struct {
	Ref
	Recorded     bool // an event of the operation is on record; else Settlement is "unknown"
	Template     string
	Completeness string
	Settlement   string
	TimedOut     bool
}
