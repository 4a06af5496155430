package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver of the naive build and of the bare statements

	"github.com/settlewatch/settlewatch/store"
)

// The works in this file are what ours are measured against.

const readSize = 1 << 20

// eachRead reads every run file with plain reads and hands the pieces to fn.
func eachRead(root string, buf []byte, fn func([]byte)) error {
	names, err := runFiles(root)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		for {
			n, err := f.Read(buf)
			fn(buf[:n])
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return errors.Join(err, f.Close())
			}
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// rawRead reads every byte of every run file, and nothing else.
func rawRead(_ context.Context, t task) (sample, error) {
	var s sample
	buf := make([]byte, readSize)
	var err error
	s.Seconds, s.CPU, err = passes(func() error {
		s.Bytes = 0
		return eachRead(t.Root, buf, func(b []byte) { s.Bytes += int64(len(b)) })
	})
	return s, err
}

// bareStat lists the run files and states each of them.
func bareStat(_ context.Context, t task) (sample, error) {
	begin := time.Now()
	n, err := statAll(filepath.Join(t.Root, "events"))
	s := sample{Seconds: time.Since(begin).Seconds()}
	if err == nil && n != t.Set.Files {
		err = fmt.Errorf("state the run files: there are %d, not %d", n, t.Set.Files)
	}
	return s, err
}

// load reads a whole set into memory.
func load(root string) ([]byte, error) {
	var all bytes.Buffer
	err := eachRead(root, make([]byte, readSize), func(b []byte) { all.Write(b) })
	return all.Bytes(), err
}

// overLines times fn over every line of a set that is in memory.
func overLines(t task, fn func(line []byte) error) (sample, error) {
	data, err := load(t.Root)
	if err != nil {
		return sample{}, err
	}
	s := sample{Bytes: int64(len(data))}
	s.Seconds, s.CPU, err = passes(func() error {
		s.Events = 0
		for rest := data; len(rest) > 0; {
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				return errors.New("the last line is torn")
			}
			if err := fn(rest[:end]); err != nil {
				return err
			}
			rest = rest[end+1:]
			s.Events++
		}
		return nil
	})
	if err == nil && s.Events != int64(t.Set.Events) {
		err = fmt.Errorf("%d events, not %d", s.Events, t.Set.Events)
	}
	return s, err
}

// plainEnvelope is what a program without a decoder of its own would read.
type plainEnvelope struct {
	EventID    string  `json:"event_id"`
	EventType  string  `json:"event_type"`
	OccurredAt string  `json:"occurred_at"`
	Seq        float64 `json:"seq"`
	Role       string  `json:"role"`
	ContextID  string  `json:"context_id"`
}

type plainTerms struct {
	Scheme  string `json:"scheme"`
	Network string `json:"network"`
	Asset   string `json:"asset"`
	Amount  string `json:"amount"`
	PayTo   string `json:"pay_to"`
	Timeout int    `json:"max_timeout_seconds"`
}

type plainPayload struct {
	Version  int `json:"x402_version"`
	Resource struct {
		URL string `json:"url"`
	} `json:"resource"`
	Requirements plainTerms   `json:"requirements"`
	Accepts      []plainTerms `json:"accepts"`
	Settle       struct {
		Success     bool   `json:"success"`
		Transaction string `json:"transaction"`
		Payer       string `json:"payer"`
	} `json:"settle"`
}

// jsonEnvelope validates a line and reads its envelope with encoding/json.
func jsonEnvelope(_ context.Context, t task) (sample, error) {
	var e struct {
		plainEnvelope
		Payload json.RawMessage `json:"payload"`
	}
	return overLines(t, func(line []byte) error {
		e.plainEnvelope, e.Payload = plainEnvelope{}, e.Payload[:0]
		return json.Unmarshal(line, &e)
	})
}

type plainEvent struct {
	plainEnvelope
	Payload plainPayload `json:"payload"`
}

// jsonFacts reads what the payload says about money as well.
func jsonFacts(_ context.Context, t task) (sample, error) {
	return overLines(t, func(line []byte) error {
		var e plainEvent
		return json.Unmarshal(line, &e)
	})
}

const pragmas = "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"

// openPlain opens a fresh database on one connection.
func openPlain(path, more string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+pragmas+more)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// naiveBuild is the index one would write first: encoding/json, a row an event
// and an upsert of its operation, a thousand events a transaction.
func naiveBuild(ctx context.Context, t task) (sample, error) {
	path := filepath.Join(t.Scratch, "naive.db")
	begin := time.Now()
	db, err := openPlain(path, "")
	if err != nil {
		return sample{}, err
	}
	n := naive{db: db}
	names, err := runFiles(t.Root)
	if err == nil {
		err = n.build(ctx, names)
	}
	s := sample{}
	if err == nil {
		err = db.QueryRowContext(ctx, "SELECT count(*), sum(events) FROM operations").Scan(&s.Operations, new(int64))
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return s, err
	}
	s.Seconds = time.Since(begin).Seconds()
	s.Events, s.Bytes, s.Index = n.events, n.bytes, fileBytes(path)
	return s, check(t, s)
}

type naive struct {
	db            *sql.DB
	events, bytes int64
	tx            *sql.Tx
	event, op     *sql.Stmt
}

func (n *naive) build(ctx context.Context, names []string) error {
	for _, q := range []string{
		`CREATE TABLE events (run TEXT, op TEXT, event_id TEXT, event_type TEXT, role TEXT, at TEXT, seq REAL, url TEXT,
			payee TEXT, asset TEXT, network TEXT, amount TEXT, tx TEXT, offset INTEGER, length INTEGER)`,
		`CREATE TABLE operations (run TEXT, op TEXT, first_at TEXT, last_at TEXT, events INTEGER, payee TEXT, asset TEXT,
			amount TEXT, url TEXT, PRIMARY KEY (run, op))`,
		`CREATE INDEX events_by_operation ON events (run, op)`,
		`CREATE INDEX operations_by_payee ON operations (payee, asset, last_at)`,
		`CREATE INDEX operations_newest ON operations (last_at)`,
	} {
		if _, err := n.db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := n.file(ctx, name); err != nil {
			return err
		}
	}
	return n.commit()
}

func (n *naive) commit() error {
	if n.tx == nil {
		return nil
	}
	err := n.tx.Commit()
	n.tx = nil
	return err
}

func (n *naive) begin(ctx context.Context) (err error) {
	if n.tx, err = n.db.BeginTx(ctx, nil); err != nil {
		return err
	}
	if n.event, err = n.tx.PrepareContext(ctx, "INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"); err != nil {
		return err
	}
	n.op, err = n.tx.PrepareContext(ctx, `INSERT INTO operations VALUES (?,?,?,?,1,?,?,?,?) ON CONFLICT DO UPDATE SET
		last_at = max(last_at, excluded.last_at), events = events + 1, payee = coalesce(nullif(excluded.payee, ''), payee)`)
	return err
}

func (n *naive) file(ctx context.Context, name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	run := filepath.Base(name)
	offset := 0
	for line := range bytes.Lines(data) {
		if n.tx == nil {
			if err := n.begin(ctx); err != nil {
				return err
			}
		}
		var e plainEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		p := &e.Payload
		terms := p.Requirements
		if len(p.Accepts) > 0 {
			terms = p.Accepts[0]
		}
		if _, err := n.event.ExecContext(ctx, run, e.ContextID, e.EventID, e.EventType, e.Role, e.OccurredAt, e.Seq, p.Resource.URL,
			terms.PayTo, terms.Asset, terms.Network, terms.Amount, p.Settle.Transaction, offset, len(line)); err != nil {
			return err
		}
		if e.ContextID != "" {
			if _, err := n.op.ExecContext(ctx, run, e.ContextID, e.OccurredAt, e.OccurredAt, terms.PayTo, terms.Asset, terms.Amount, p.Resource.URL); err != nil {
				return err
			}
		}
		offset += len(line)
		n.bytes += int64(len(line))
		if n.events++; n.events%1000 == 0 {
			if err := n.commit(); err != nil {
				return err
			}
		}
	}
	return nil
}

// selectOne is the least a question to the driver costs.
func selectOne(ctx context.Context, t task) (sample, error) {
	db, err := openPlain(filepath.Join(t.Scratch, "one.db"), "")
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = db.Close() }()
	stmt, err := db.PrepareContext(ctx, "SELECT 1")
	if err != nil {
		return sample{}, err
	}
	took, err := latencies(20_000, func(int) error {
		var one int
		return stmt.QueryRowContext(ctx).Scan(&one)
	})
	return sample{P50: quantile(took, 0.5), P99: quantile(took, 0.99)}, err
}

// bareCommit is the least a live index has to write for one more event: an
// operation's row with its place in three indexes, and its run's row, in one
// transaction with the pragmas of the index. Seconds is the mean of one, the
// checkpoints in between included.
func bareCommit(ctx context.Context, t task) (sample, error) {
	db, err := openPlain(filepath.Join(t.Scratch, "commit.db"), "&_pragma=wal_autocheckpoint(250)&_txlock=immediate")
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = db.Close() }()
	const rows = 100_000
	for _, q := range []string{
		"CREATE TABLE runs (run INTEGER PRIMARY KEY, covered INTEGER, crc INTEGER)",
		"CREATE TABLE operations (op INTEGER PRIMARY KEY, key BLOB UNIQUE, last INTEGER, class INTEGER, spans BLOB)",
		`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ` + strconv.Itoa(rows) + `)
			INSERT INTO operations SELECT i, randomblob(36), i, i % 20, randomblob(80) FROM n`,
		"CREATE INDEX newest ON operations (last)",
		"CREATE INDEX by_class ON operations (class, last)",
		"INSERT INTO runs VALUES (1, 0, 0)",
		"PRAGMA wal_checkpoint(TRUNCATE)",
	} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return sample{}, err
		}
	}
	op, err := db.PrepareContext(ctx, "UPDATE operations SET last = ?, class = ?, spans = ? WHERE op = ?")
	if err != nil {
		return sample{}, err
	}
	run, err := db.PrepareContext(ctx, "UPDATE runs SET covered = ?, crc = ? WHERE run = 1")
	if err != nil {
		return sample{}, err
	}
	r := rand.New(rand.NewPCG(t.Seed, 0))
	spans := make([]byte, 90)
	var total float64
	took, err := latencies(5000, func(i int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		// The operations a live index touches are mostly the newest ones.
		if _, err := tx.StmtContext(ctx, op).ExecContext(ctx, rows+i, i%20, spans, rows-1-r.IntN(1000)); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if _, err := tx.StmtContext(ctx, run).ExecContext(ctx, 600*i, i); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
	for _, s := range took {
		total += s
	}
	return sample{Seconds: ratio(total, float64(len(took))), P50: quantile(took, 0.5), P99: quantile(took, 0.99)}, err
}

// bareCopy is the least SQLite itself costs of a cold build: every row of a finished
// index inserted into a new one by one statement a table, in order, then its indexes,
// with the pragmas of the index. No line is read, nothing crosses into Go.
func bareCopy(ctx context.Context, t task) (sample, error) {
	begin := time.Now()
	path := filepath.Join(t.Scratch, "copy.db")
	db, err := openPlain(path, "&_pragma=wal_autocheckpoint(250)&_pragma=cache_size(-10240)&_pragma=threads(2)")
	if err != nil {
		return sample{}, err
	}
	err = copyIndex(ctx, db, filepath.Join(t.Guard, store.FileName()))
	s := sample{}
	if err == nil {
		err = db.QueryRowContext(ctx, "SELECT operations, events FROM meta").Scan(&s.Operations, &s.Events)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return s, err
	}
	s.Seconds, s.Index = time.Since(begin).Seconds(), fileBytes(path)
	return s, check(t, s)
}

func copyIndex(ctx context.Context, db *sql.DB, from string) error {
	if _, err := db.ExecContext(ctx, "ATTACH ? AS old", from); err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, `SELECT type, name, sql, coalesce((SELECT group_concat('"' || name || '"') FROM pragma_table_info(s.name, 'old')), '') FROM old.sqlite_schema s WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY type = 'index', name`)
	if err != nil {
		return err
	}
	todo := []string{"BEGIN IMMEDIATE"}
	for rows.Next() {
		var kind, name, statement, columns string // those that are stored
		if err := rows.Scan(&kind, &name, &statement, &columns); err != nil {
			return errors.Join(err, rows.Close())
		}
		if todo = append(todo, statement); kind == "table" {
			todo = append(todo, fmt.Sprintf("INSERT INTO main.%s (%s) SELECT %[2]s FROM old.%[1]s", name, columns))
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, q := range append(todo, "COMMIT", "PRAGMA wal_checkpoint(TRUNCATE)") {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%.40s: %w", q, err)
		}
	}
	return nil
}

// check compares what a build found with what the set holds: a fast answer
// that is wrong is no measurement.
func check(t task, s sample) error {
	m, err := readManifest(t.Root)
	if err != nil {
		return err
	}
	if s.Operations != m.Tally.Operations || (s.Events != 0 && s.Events != m.Tally.Events) {
		return fmt.Errorf("found %d operations of %d events, the set holds %d of %d", s.Operations, s.Events, m.Tally.Operations, m.Tally.Events)
	}
	return nil
}
