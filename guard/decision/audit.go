package decision

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

// Report is what [Verify] found.
type Report struct {
	Path       string
	Exists     bool
	Lines      int64 // that verify
	Sig, First string
	At         time.Time // of the last line
	Torn       int64     // bytes after the last whole line
	Pinned     int64     // lines a checkpoint covers
	Unsound    *Unsound  // nil when the chain holds; its State is nil here
}

// Tail is "pinned" when a checkpoint covers the last line, else "NOT PINNED".
func (r *Report) Tail() string {
	if r.Unsound == nil && r.Exists && r.Pinned == r.Lines {
		return "pinned"
	}
	return "NOT PINNED"
}

// Verify proves the chain of a log file from its first byte, and compares it with
// a checkpoint where one is given. The error is about reading the file; what is
// wrong with the log is in the report. Whose signatures count it does not ask.
func Verify(ctx context.Context, path string, pin *Checkpoint) (*Report, error) {
	r := &Report{Path: path}
	f, size, err := openFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errcode.Wrap(err, errcode.Input, "give the path of a decisions log", "read the decisions log %s", path)
	}
	if err == nil {
		defer func() { _ = f.Close() }() // it was only read
		if err := r.verify(ctx, f, size, pin); err != nil {
			return nil, err
		}
	}
	if pin == nil || r.Unsound != nil {
		return r, nil
	}
	switch {
	case !r.Exists && pin.Count > 0:
		r.Unsound = &Unsound{Path: path, Reason: fmt.Sprintf("it is gone, and a checkpoint pins %s", counted(pin.Count))}
	case r.Lines < pin.Count:
		r.Unsound = &Unsound{Path: path, Reason: fmt.Sprintf("it has %s, and a checkpoint pins %d", counted(r.Lines), pin.Count)}
	default:
		r.Pinned = pin.Count
	}
	return r, nil
}

func (r *Report) verify(ctx context.Context, f io.ReaderAt, size int64, pin *Checkpoint) error {
	r.Exists = true
	v := newVerifier()
	err := v.follow(ctx, f, size, func(lines []*line) error {
		for _, l := range lines {
			if l.Seq == 1 {
				r.First = l.Sig
			}
			if pin != nil && l.Seq == pin.Count && l.Sig != pin.Sig {
				return &broken{line: l.Seq, reason: "it is another line than the one the checkpoint pins"}
			}
			r.Lines, r.Sig, r.At = l.Seq, l.Sig, l.At
		}
		return nil
	})
	var at *broken
	if errors.As(err, &at) {
		r.Unsound = &Unsound{Path: r.Path, Line: at.line, Reason: at.reason, Foreign: at.foreign}
		return nil
	}
	r.Torn = size - v.bytes
	return err
}

// openFile opens a file that need not be in a guard directory: an auditor was
// handed it.
func openFile(path string) (File, int64, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil, 0, err
	}
	d, err := safefile.OpenDir(dir)
	if err != nil {
		return nil, 0, err
	}
	defer d.Close()
	f, info, err := d.Open(filepath.Base(path))
	return f, info.Size, err
}

// Export writes the log's lines as "ndjson" (byte for byte) or "csv" (a table with
// a heading). It refuses a log that does not verify.
func (l *Log) Export(ctx context.Context, w io.Writer, format string) error {
	var give func(raw []byte) error
	flush := func() error { return nil }
	switch format {
	case "ndjson":
		give = func(raw []byte) error {
			_, err := w.Write(append(raw[:len(raw):len(raw)], '\n'))
			return err
		}
	case "csv":
		table := csv.NewWriter(w)
		if err := table.Write(columns); err != nil {
			return err
		}
		give = func(raw []byte) error { return table.Write(row(raw)) }
		flush = func() error { table.Flush(); return table.Error() }
	default:
		return errcode.New(errcode.Input, "use ndjson or csv", "format %q is not known", cut(format))
	}
	state, err := l.Read(ctx)
	if err != nil {
		return err
	}
	if state.lines == 0 {
		return flush()
	}
	dir, err := l.o.FS.Dir(l.o.Dir, false)
	if err != nil {
		return l.cannot(err, "open the guard directory")
	}
	defer func() { _ = dir.Close() }() // it was only read through
	f, info, err := dir.Open(FileName)
	if err != nil {
		return l.cannot(err, "read the decisions log")
	}
	defer func() { _ = f.Close() }() // it was only read
	// Verified again as it goes out: what is handed over is what was proved.
	v := newVerifier()
	err = eachLine(ctx, f, 0, info.Size, func(raw []byte) error {
		if v.lines+int64(len(v.batch)) == state.lines {
			return io.EOF // what was appended meanwhile
		}
		if _, err := v.feed(raw); err != nil {
			return err
		}
		return give(raw)
	})
	var at *broken
	if errors.As(err, &at) {
		return l.unsound(state, at.line, "%s", at.reason)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return flush()
}

// columns are the heading of the table: the members that most lines have, each
// under its name; a line's others are in no column, and in the ndjson.
var columns = []string{
	"seq", "at", "type", "actor", "review_id", "hold_id", "run_id", "operation_id", "names", "amount", "asset", "resource",
	"decision", "outcome", "scope", "rule", "detail", "reason", "note", "decided_by", "signed_at", "key", "policy_hash", "prev", "sig",
}

// row gives the cells of a verified line.
func row(raw []byte) []string {
	var m struct {
		Intent *Intent `json:"intent"`
	}
	var all map[string]any
	_ = json.Unmarshal(raw, &m) // verified: it is an object
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	_ = dec.Decode(&all) // likewise
	cells := make([]string, len(columns))
	for i, name := range columns {
		var text string
		switch v := all[name].(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		}
		if m.Intent != nil {
			switch name {
			case "names":
				text = strings.Join(m.Intent.Names, " ")
			case "amount":
				text = m.Intent.Amount
			case "asset":
				text = m.Intent.Asset
			case "resource":
				text = m.Intent.Resource
			}
		}
		cells[i] = harmless(text)
	}
	return cells
}

// harmless keeps a cell from being run as a formula by the program that opens the
// table: text in it comes from strangers.
func harmless(cell string) string {
	if cell == "" {
		return cell
	}
	if _, err := strconv.ParseInt(cell, 10, 64); err == nil && cell[0] != '-' && cell[0] != '+' {
		return cell
	}
	if strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}
