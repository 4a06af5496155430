package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/settlewatch/settlewatch/migrations"
)

// ErrUnusable says that the file is no index of ours any more: corrupt, of
// another program or schema, replaced or deleted under the handle. The cure is
// to Discard it and open a fresh one.
var ErrUnusable = errors.New("the index file is not usable")

// ErrBusy says that another process held the index longer than we wait.
var ErrBusy = errors.New("the index is locked by another process")

// busyMillis is how long one statement waits for another process's lock.
const busyMillis = 2500

// FileName is the name of the index inside a guard directory. The schema is
// part of it, so two binaries never fight over one file.
func FileName() string { return fmt.Sprintf("index-v%d.db", migrations.Schema) }

// Index is an open index. Its methods may be called from many goroutines.
type Index struct {
	path string
	info os.FileInfo

	read    *sqlx.DB      // read-only
	readers chan *session // as many as cores
	known   dictionary    // of the readers

	mu     sync.Mutex // serialises write transactions of this process
	write  *sqlx.DB   // one connection
	tx     *Tx        // its prepared statements and caches
	closed bool
	wal    int64 // how long the write-ahead log was when it could not begin anew
}

var setup = sync.OnceFunc(func() {
	// POSIX locks vanish when any descriptor of the file is closed in this
	// process; open-file-description locks do not.
	_, _ = sqlite.OFDLocking(runtime.GOOS == "linux") // refused where the system has none
	sqlite.StrictPragmas(true)
	sqlx.BindDriver("sqlite", sqlx.QUESTION)
})

func dsn(path, mode string, pragmas ...string) string {
	q := url.Values{"_dqs": {"0"}, "_defensive": {"1"}, "mode": {mode}}
	for _, p := range pragmas {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// Open opens or creates the index at path, an absolute path whose directory
// exists. A file that is not a sound index of this schema gives ErrUnusable.
func Open(ctx context.Context, path string) (*Index, error) {
	setup()
	info, err := regular(path)
	if err != nil {
		return nil, err
	}

	x := &Index{path: path, info: info}
	busy := fmt.Sprintf("busy_timeout(%d)", busyMillis)
	x.write, err = sqlx.Open("sqlite", dsn(path, "rwc", busy,
		"journal_mode(WAL)", "synchronous(NORMAL)", "wal_autocheckpoint(250)", fmt.Sprintf("journal_size_limit(%d)", walKept),
		"cache_size(-10240)", "threads(2)"))
	if err != nil {
		return nil, classify(err)
	}
	x.write.SetMaxOpenConns(1)
	if err := x.prepare(ctx); err != nil {
		_ = x.write.Close()
		return nil, classify(err)
	}
	x.read, err = sqlx.Open("sqlite", dsn(path, "rw", busy, "query_only(1)", "temp_store(MEMORY)", "cache_size(-4096)"))
	if err != nil {
		_ = x.write.Close()
		return nil, classify(err)
	}
	n := max(2, runtime.NumCPU())
	x.read.SetMaxOpenConns(n)
	x.readers = make(chan *session, n)
	for range n {
		x.readers <- &session{}
	}
	return x, nil
}

// prepare brings the schema up, refuses a newer one, and prepares the writer.
func (x *Index) prepare(ctx context.Context) error {
	var mode string
	if err := x.write.GetContext(ctx, &mode, "PRAGMA journal_mode"); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("open index: journal mode %q instead of wal (a network file system?)", mode)
	}
	// What a transaction cannot keep in memory goes beside the index: on the disk that
	// was given to it, and where a process that was restricted may write. Where it
	// cannot, the index cannot be written either, which shows by itself.
	_, _ = x.write.ExecContext(ctx, "PRAGMA temp_store_directory = '"+strings.ReplaceAll(filepath.Dir(x.path), "'", "''")+"'")
	have, err := x.version(ctx)
	if err != nil {
		return err
	}
	if have > migrations.Schema {
		return fmt.Errorf("%w: schema %d is newer than %d", ErrUnusable, have, migrations.Schema)
	}
	if have < migrations.Schema {
		if err := x.migrate(ctx); err != nil {
			return err
		}
	}
	if err := x.checkSchema(ctx); err != nil {
		return err
	}
	conn, err := x.write.Connx(ctx)
	if err != nil {
		return err
	}
	x.tx = newTx(conn)
	return nil
}

func (x *Index) version(ctx context.Context) (int64, error) {
	var n int
	if err := x.write.GetContext(ctx, &n, "SELECT count(*) FROM sqlite_schema WHERE name = 'goose_db_version'"); err != nil {
		return 0, err
	}
	if n == 0 {
		if err := x.write.GetContext(ctx, &n, "SELECT count(*) FROM sqlite_schema"); err != nil {
			return 0, err
		}
		if n != 0 {
			return 0, fmt.Errorf("%w: it holds tables of another program", ErrUnusable)
		}
		return 0, nil
	}
	var v int64
	err := x.write.GetContext(ctx, &v, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied = 1")
	return v, err
}

// migrate runs goose. Several processes may come here at once; goose applies
// each migration in a transaction of its own, and the loser finds it done.
func (x *Index) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations.SQLite, "sqlite")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, x.write.DB, files)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		if _, err = p.Up(ctx); err == nil {
			return nil
		}
		if have, verr := x.version(ctx); verr == nil && have == migrations.Schema {
			return nil
		}
		if try == 5 {
			return err
		}
	}
}

// checkSchema compares the tables found with the ones the migrations make: a
// file whose version row is right but whose tables are not is no index.
func (x *Index) checkSchema(ctx context.Context) error {
	var have []string
	if err := x.write.SelectContext(ctx, &have, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND tbl_name NOT LIKE 'goose%' AND tbl_name NOT LIKE 'sqlite%'"); err != nil {
		return err
	}
	want, err := created()
	if err != nil {
		return err
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		return fmt.Errorf("%w: its tables are not those of schema %d", ErrUnusable, migrations.Schema)
	}
	return nil
}

// created is what the migrations create, as SQLite keeps it: the text of each
// statement from its first word to before its semicolon. It is read from the
// files, because every command opens an index and a database made to compare
// with would cost each of them milliseconds.
var created = sync.OnceValues(func() ([]string, error) {
	var statements []string
	err := fs.WalkDir(migrations.SQLite, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := migrations.SQLite.ReadFile(path)
		if err != nil {
			return err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		for _, part := range strings.Split(up, ";\n") {
			if i := strings.Index(part, "\nCREATE "); i >= 0 {
				statements = append(statements, part[i+1:])
			} else if strings.HasPrefix(part, "CREATE ") {
				statements = append(statements, part)
			}
		}
		return nil
	})
	slices.Sort(statements)
	return statements, err
})

// Path is the index file.
func (x *Index) Path() string { return x.path }

// headerSize is less than any index that was opened has.
const headerSize = 512

// Moved tells whether the path no longer names the file this handle has open:
// it was deleted, cut to nothing, or another one was put in its place.
func (x *Index) Moved() bool {
	info, err := os.Lstat(x.path)
	return err != nil || !os.SameFile(info, x.info) || info.Size() < headerSize
}

// Bytes is the size of the file and of its write-ahead log.
func (x *Index) Bytes() int64 {
	var n int64
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Lstat(x.path + suffix); err == nil {
			n += info.Size()
		}
	}
	return n
}

// Close checkpoints the write-ahead log away and closes both handles. Whoever comes to
// it after that is given ErrUnusable: another one serves by then.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	for range cap(x.readers) {
		s := <-x.readers // waits for questions under way
		s.close()
	}
	close(x.readers)
	rerr := x.read.Close()
	if !x.Moved() {
		// Truncating keeps the next first opener from replaying the log. A
		// reader elsewhere may hold it; then the last process to leave does it.
		x.tx.checkpoint("TRUNCATE", walWait)
	}
	x.tx.close()
	werr := x.write.Close()
	return errors.Join(rerr, werr)
}

// Discard moves the files of an unusable index aside under a name of their
// own, so that a fresh one can be made. Callers hold the lock that keeps other
// processes from doing the same.
func Discard(path string) error {
	aside := path + ".unusable"
	for _, suffix := range []string{"-wal", "-shm", ""} {
		_ = os.Remove(aside + suffix)
		if err := os.Rename(path+suffix, aside+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set the unusable index aside: %w", err)
		}
	}
	return nil
}

// Sweep removes what a deleted index left behind. Its shared memory may still be
// mapped by a process that has the deleted file open, and a new index must not
// share it. Callers hold the lock that keeps other processes from making one.
func Sweep(path string) error {
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clear the way for a new index: %w", err)
		}
	}
	return nil
}

// regular stats the index file, which it makes if there is none. A new file
// belongs to its user alone from its first byte.
func regular(path string) (os.FileInfo, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, cerr := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if cerr == nil {
			cerr = f.Close()
		}
		if cerr != nil && !errors.Is(cerr, fs.ErrExist) {
			return nil, fmt.Errorf("make the index: %w", cerr)
		}
		info, err = os.Lstat(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open the index: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is no regular file", ErrUnusable, filepath.Base(path))
	}
	if n := info.Size(); n > 0 && n < headerSize {
		// SQLite would find the rest in a write-ahead log that another process keeps.
		return nil, fmt.Errorf("%w: %s is cut short", ErrUnusable, filepath.Base(path))
	}
	return info, nil
}

// classify maps SQLite's result codes to the two conditions callers act on.
func classify(err error) error {
	if err == nil || errors.Is(err, ErrUnusable) || errors.Is(err, ErrBusy) {
		return err
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT,
		sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_MISMATCH:
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case sqlite3.SQLITE_IOERR:
		// A file cut short or deleted under the handle reads as an I/O error.
		switch e.Code() {
		case sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_FSTAT, sqlite3.SQLITE_IOERR_IN_PAGE:
			return fmt.Errorf("%w: %w", ErrUnusable, err)
		}
	case sqlite3.SQLITE_ERROR:
		// "no such table": the schema was changed under us.
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return err
}
