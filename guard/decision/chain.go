package decision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"
	"sync"
	"time"
)

// verifier follows the chain of a log from line to line. What it has accepted
// ends where a write ended: of several lines that were written together it
// accepts all or none.
type verifier struct {
	readers []*reader
	old     time.Time // see reader

	lines int64 // accepted
	sig   string
	bytes int64     // accepted
	sum   hash.Hash // over them
	tail  []byte    // the last of them, whole lines, to see later that they are still there
	sigs  ring

	batch    []*line // verified, but not the last of their write yet
	batchRaw []byte
}

func newVerifier() *verifier { return &verifier{sum: sha256.New()} }

// tailKept is how many of the last accepted bytes are kept at least; up to that
// size the whole file is compared when it has grown.
const tailKept = 64 << 10

// broken is a line that does not follow.
type broken struct {
	line    int64
	reason  string
	foreign bool
}

func (b *broken) Error() string { return fmt.Sprintf("line %d: %s", b.line, b.reason) }

// feed verifies one line, without its newline, and gives the lines that are
// accepted with it: none while lines of the same write are missing. The error is
// a *broken.
func (v *verifier) feed(raw []byte) ([]*line, error) {
	lines, errs := v.readAll([][]byte{raw})
	return v.next(raw, lines[0], errs[0])
}

// next is feed of a line that was read.
func (v *verifier) next(raw []byte, l *line, err error) ([]*line, error) {
	seq, prev, more := v.lines+1, v.sig, int64(-1)
	if n := len(v.batch); n > 0 {
		last := v.batch[n-1]
		seq, prev, more = last.Seq+1, last.Sig, last.More-1
	}
	if err != nil {
		b := &broken{line: seq, reason: err.Error()}
		var f *fault
		if errors.As(err, &f) {
			b.foreign = f.foreign && seq == 1
		}
		return nil, b
	}
	switch {
	case l.Seq != seq:
		return nil, &broken{line: seq, reason: fmt.Sprintf("its seq is %d", l.Seq)}
	case l.Prev != prev:
		return nil, &broken{line: seq, reason: "its prev is not the sig of the line before it"}
	case more >= 0 && l.More != more:
		return nil, &broken{line: seq, reason: fmt.Sprintf("the line before it says that it is followed by %d of the same write, and it says %d", more+1, l.More)}
	}
	v.batch = append(v.batch, l)
	v.batchRaw = append(append(v.batchRaw, raw...), '\n')
	if l.More > 0 {
		return nil, nil
	}
	done := v.batch
	v.accept(v.batchRaw, done)
	v.batch, v.batchRaw = nil, v.batchRaw[:0]
	return done, nil
}

// accept takes lines for verified that were just read, or just written.
func (v *verifier) accept(raw []byte, lines []*line) {
	for _, l := range lines {
		v.lines, v.sig = l.Seq, l.Sig
		v.sigs.put(l.Seq, l.Sig)
	}
	v.bytes += int64(len(raw))
	v.sum.Write(raw)
	// Trimmed now and then only: moving the rest for each line costs more than it
	// saves.
	if v.tail = append(v.tail, raw...); len(v.tail) > 4*tailKept {
		v.tail = append(v.tail[:0], v.tail[len(v.tail)-tailKept:]...)
	}
}

// stands reports whether the bytes that were accepted are still what the file
// begins with. It compares the last of them, or all when all is true.
func (v *verifier) stands(ctx context.Context, f io.ReaderAt, all bool) (bool, error) {
	if !all || v.bytes <= int64(len(v.tail)) {
		have := make([]byte, len(v.tail))
		_, err := io.ReadFull(io.NewSectionReader(f, v.bytes-int64(len(have)), int64(len(have))), have)
		return err == nil && bytes.Equal(have, v.tail), notShort(err)
	}
	h := sha256.New()
	n, err := io.Copy(h, &reading{ctx, io.NewSectionReader(f, 0, v.bytes)})
	return n == v.bytes && bytes.Equal(h.Sum(nil), v.sum.Sum(nil)), err
}

func notShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// reading stops when its context ends.
type reading struct {
	ctx context.Context
	r   io.Reader
}

func (r *reading) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// ring holds the last signatures by line.
type ring struct{ sigs []string }

const ringSize = 1024

func (r *ring) put(seq int64, sig string) {
	if len(r.sigs) < ringSize {
		r.sigs = append(r.sigs, sig)
		return
	}
	r.sigs[(seq-1)%ringSize] = sig
}

// at is the signature of a line, when it is one of the last of lines.
func (r *ring) at(seq, lines int64) (string, bool) {
	if seq < 1 || seq > lines || lines-seq >= int64(len(r.sigs)) {
		return "", false
	}
	return r.sigs[(seq-1)%ringSize], true
}

// eachBlock gives the complete lines between two offsets of a file, without their
// newlines, to fn, which must not keep them: many at a time. It stops at fn's
// error. What follows the last newline is no line.
func eachBlock(ctx context.Context, f io.ReaderAt, from, to int64, fn func(lines [][]byte) error) error {
	var rest []byte // of a line that began in an earlier block
	var lines [][]byte
	block := make([]byte, min(1<<20, max(to-from, 0)))
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := f.ReadAt(block[:min(int64(len(block)), to-from)], from)
		if n == 0 && err != nil {
			return notShort(err) // it has become shorter: the next look sees that
		}
		from += int64(n)
		data := block[:n]
		lines = lines[:0]
		for {
			i := bytes.IndexByte(data, '\n')
			if i < 0 {
				break
			}
			raw := data[:i]
			if len(rest) > 0 {
				raw, rest = append(rest, raw...), nil
			}
			lines, data = append(lines, raw), data[i+1:]
		}
		// Of a line that is too long only that it is so matters.
		if len(rest) <= maxLine {
			rest = append(rest, data...)
		}
		if len(lines) == 0 {
			continue
		}
		if err := fn(lines); err != nil {
			return err
		}
	}
	return nil
}

// eachLine is eachBlock for a line at a time.
func eachLine(ctx context.Context, f io.ReaderAt, from, to int64, fn func(raw []byte) error) error {
	return eachBlock(ctx, f, from, to, func(lines [][]byte) error {
		for _, raw := range lines {
			if err := fn(raw); err != nil {
				return err
			}
		}
		return nil
	})
}

// follow verifies what a file holds from the accepted lines on up to an offset,
// and gives what is accepted of it to fn. It stops at the first line that does not
// follow, with a *broken, and at fn's error.
//
// What a line says of itself is checked on every core; that it follows the one
// before it is checked in order.
func (v *verifier) follow(ctx context.Context, f io.ReaderAt, to int64, fn func(lines []*line) error) error {
	return eachBlock(ctx, f, v.bytes, to, func(raw [][]byte) error {
		read, errs := v.readAll(raw)
		for i := range raw {
			done, err := v.next(raw[i], read[i], errs[i])
			if err != nil {
				return err
			}
			if len(done) == 0 {
				continue
			}
			if err := fn(done); err != nil {
				return err
			}
		}
		return nil
	})
}

// parallelFrom is how many lines are worth another goroutine.
const parallelFrom = 100

func (v *verifier) readAll(raw [][]byte) ([]*line, []error) {
	lines, errs := make([]*line, len(raw)), make([]error, len(raw))
	workers := max(1, min(runtime.GOMAXPROCS(0), len(raw)/parallelFrom))
	for len(v.readers) < workers {
		v.readers = append(v.readers, &reader{})
	}
	var wg sync.WaitGroup
	each := (len(raw) + workers - 1) / workers
	for w := range workers {
		r := v.readers[w]
		r.old = v.old
		wg.Go(func() {
			for i := w * each; i < min((w+1)*each, len(raw)); i++ {
				lines[i], errs[i] = r.read(raw[i])
			}
		})
	}
	wg.Wait()
	return lines, errs
}
