package mcp

import "bytes"

// keepLine is how large a line buffer may stay allocated between lines.
const keepLine = 256 << 10

// splitter cuts a stream into lines without ever holding more than max bytes of
// one. A longer line is reported once, when it passes max, and its rest is
// thrown away as it comes.
type splitter struct {
	max      int
	partial  []byte
	skipping bool
}

// feed splits chunk. line gets each complete line without its line feed, valid
// until it returns; tooLong stands for a line over the cap.
func (s *splitter) feed(chunk []byte, line func([]byte), tooLong func()) {
	for len(chunk) > 0 {
		end := bytes.IndexByte(chunk, '\n')
		piece := chunk
		if end >= 0 {
			piece = chunk[:end]
		}
		switch {
		case s.skipping:
		case len(s.partial)+len(piece) > s.max:
			s.skipping = true
			s.partial = nil
			tooLong()
		case end >= 0 && len(s.partial) == 0:
			line(piece)
		default:
			s.partial = append(s.partial, piece...)
			if end >= 0 {
				line(s.partial)
				s.partial = s.partial[:0]
				if cap(s.partial) > keepLine {
					s.partial = nil
				}
			}
		}
		if end < 0 {
			return
		}
		s.skipping = false
		chunk = chunk[end+1:]
	}
}

// end reports the last line of a stream that stopped without a line feed: a
// host that writes one request and closes the pipe is answered like any other.
func (s *splitter) end(line func([]byte)) {
	if len(s.partial) > 0 {
		line(s.partial)
	}
	s.partial = nil
}
