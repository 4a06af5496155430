package decision

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// Line is a line of the log as it stands, for who shows it.
type Line struct {
	Envelope
	Body Body   // by pointer
	Raw  []byte // without its newline
}

// Tail gives the last lines that keep says yes to, newest first: at most n, of those
// before the line of a number, or of all where that is 0. It looks at what was
// verified and at nothing behind it, and reads no more of the log than that takes.
// more reports whether there may be others before them.
func (l *Log) Tail(ctx context.Context, before int64, n int, keep func(*Line) bool) (found []Line, more bool, err error) {
	var bad *Unsound
	if _, err := l.Read(ctx); err != nil && !errors.As(err, &bad) {
		return nil, false, err
	}
	l.mu.Lock()
	end, exists := l.look.bytes, l.look.exists
	l.mu.Unlock()
	if !exists {
		return nil, false, nil
	}
	dir, err := l.o.FS.Dir(l.o.Dir, false)
	if err != nil {
		return nil, false, l.cannot(err, "open the guard directory")
	}
	defer func() { _ = dir.Close() }() // it was only read through
	f, _, err := dir.Open(FileName)
	if err != nil {
		return nil, false, l.cannot(err, "read the decisions log")
	}
	defer func() { _ = f.Close() }() // it was only read
	var rd reader
	err = backwards(ctx, f, end, func(raw []byte) (bool, error) {
		in, err := rd.read(raw)
		if err != nil {
			return false, err
		}
		if before > 0 && in.Seq >= before {
			return true, nil
		}
		line := Line{in.Envelope, in.body, bytes.Clone(raw)}
		if !keep(&line) {
			return true, nil
		}
		if more = len(found) == n; more {
			return false, nil
		}
		found = append(found, line)
		return true, nil
	})
	if err != nil {
		return nil, false, l.cannot(err, "read the decisions log")
	}
	return found, more, nil
}

// Pinned reports whether the checkpoint that is kept covers every line that was read.
func (l *Log) Pinned() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	pin, bad := l.readPin()
	return bad == nil && pin.Count > 0 && pin.Count == l.look.lines && pin.Sig == l.look.sig
}

// backwards gives the lines before an offset, which follows a newline, to fn, the
// last first, until fn says that it has enough. fn must not keep them.
func backwards(ctx context.Context, f io.ReaderAt, end int64, fn func(raw []byte) (bool, error)) error {
	const step = 64 << 10
	var rest []byte // the end of a line whose beginning is not read yet
	for end > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		size := min(step, end)
		block := make([]byte, size, size+int64(len(rest)))
		if _, err := io.ReadFull(io.NewSectionReader(f, end-size, size), block); err != nil {
			return err
		}
		end -= size
		block = append(block, rest...)
		for {
			block = bytes.TrimSuffix(block, []byte("\n"))
			i := bytes.LastIndexByte(block, '\n')
			if i < 0 && end > 0 {
				break
			}
			if len(block) > i+1 {
				if more, err := fn(block[i+1:]); err != nil || !more {
					return err
				}
			}
			if i < 0 {
				return nil
			}
			block = block[:i+1]
		}
		rest = block
	}
	return nil
}
