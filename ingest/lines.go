package ingest

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
)

// maxLine is the longest line that is read; a longer one is a fault and is
// passed over without being held in memory (design, "Damage").
const maxLine = 8 << 20

const readSize = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// lineReader hands out the complete lines of a file between two offsets and
// keeps a running checksum of every byte up to the end of the last one.
type lineReader struct {
	f       io.ReaderAt
	buf     []byte
	start   int   // of the unread part of buf
	end     int   // of the bytes in buf
	next    int64 // file offset of buf[end]
	limit   int64
	covered int64  // offset after the last line handed out
	crc     uint32 // of [0, covered)
}

func newLineReader(f io.ReaderAt, from, limit int64, crc uint32, buf []byte) *lineReader {
	if cap(buf) < readSize {
		buf = make([]byte, readSize)
	}
	return &lineReader{f: f, buf: buf[:cap(buf)], next: from, limit: limit, covered: from, crc: crc}
}

// line gives the next complete line without its newline, and its offset. The
// bytes are good until the next call. A line over maxLine comes as tooLong
// with no bytes. At the end of what is complete it gives io.EOF.
func (r *lineReader) line() (b []byte, offset int64, tooLong bool, err error) {
	scanned := r.start
	for {
		if i := bytes.IndexByte(r.buf[scanned:r.end], '\n'); i >= 0 {
			b = r.buf[r.start : scanned+i]
			if len(b) > maxLine {
				return r.skip()
			}
			offset = r.covered
			r.advance(scanned + i + 1)
			return b, offset, false, nil
		}
		if r.end-r.start > maxLine {
			return r.skip()
		}
		scanned = r.end
		if err := r.fill(&scanned); err != nil {
			return nil, 0, false, err
		}
	}
}

// advance takes buf[start:to] as covered.
func (r *lineReader) advance(to int) {
	r.crc = crc32.Update(r.crc, castagnoli, r.buf[r.start:to])
	r.covered += int64(to - r.start)
	r.start = to
}

// fill reads more behind the bytes in buf, making room first.
func (r *lineReader) fill(scanned *int) error {
	if r.next >= r.limit {
		return io.EOF
	}
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
		*scanned -= r.start
		r.end -= r.start
		r.start = 0
	}
	if r.end == len(r.buf) {
		bigger := make([]byte, min(2*len(r.buf), maxLine+readSize))
		copy(bigger, r.buf[:r.end])
		r.buf = bigger
	}
	want := min(int64(len(r.buf)-r.end), r.limit-r.next)
	n, err := r.f.ReadAt(r.buf[r.end:r.end+int(want)], r.next)
	r.end += n
	r.next += int64(n)
	if n > 0 {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		// The file is shorter than its stat said a moment ago: what is left
		// belongs to the next look at it.
		return io.EOF
	}
	return err
}

// skip passes over a line that is too long. If its newline is not there yet
// nothing is covered: it is a torn tail like any other.
func (r *lineReader) skip() ([]byte, int64, bool, error) {
	crc := crc32.Update(r.crc, castagnoli, r.buf[r.start:r.end])
	at := r.covered + int64(r.end-r.start)
	if i := bytes.IndexByte(r.buf[r.start:r.end], '\n'); i >= 0 {
		offset := r.covered
		r.advance(r.start + i + 1)
		return nil, offset, true, nil
	}
	buf := r.buf[:readSize]
	for pos := at; pos < r.limit; {
		n, err := r.f.ReadAt(buf[:min(int64(len(buf)), r.limit-pos)], pos)
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			offset := r.covered
			r.crc = crc32.Update(crc, castagnoli, buf[:i+1])
			r.covered = pos + int64(i) + 1
			r.next, r.start, r.end = r.covered, 0, 0
			return nil, offset, true, nil
		}
		crc = crc32.Update(crc, castagnoli, buf[:n])
		pos += int64(n)
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				break
			}
			return nil, 0, false, err
		}
	}
	// buf has been overwritten; nothing behind `covered` may be read from it.
	r.next, r.start, r.end = r.limit, 0, 0
	return nil, 0, false, io.EOF
}

// checksum is the crc32c of [from, to) of a file; short tells that the file
// ended before `to`.
func checksum(f io.ReaderAt, from, to int64, buf []byte) (crc uint32, short bool, err error) {
	for from < to {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), to-from)], from)
		crc = crc32.Update(crc, castagnoli, buf[:n])
		from += int64(n)
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				return crc, true, nil
			}
			return crc, false, err
		}
	}
	return crc, false, nil
}
