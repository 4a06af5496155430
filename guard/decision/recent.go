package decision

import (
	"bytes"
	"errors"
	"io/fs"
)

// Recent gives the last lines of a log file as they stand there, the newest first
// and without their newlines: what people look at. It reads no more than so many
// bytes from the end, proves nothing, and leaves out what has no newline yet. A log
// that is not there has none.
func Recent(path string, lines int, most int64) ([][]byte, error) {
	f, size, err := openFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	from := max(0, size-most)
	text := make([]byte, size-from)
	n, err := f.ReadAt(text, from)
	if text = text[:n]; n == 0 {
		return nil, notShort(err)
	}
	if from > 0 {
		// The first line is a part of one.
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	var out [][]byte
	for end := bytes.LastIndexByte(text, '\n'); end >= 0 && len(out) < lines; {
		begin := bytes.LastIndexByte(text[:end], '\n') + 1
		out = append(out, text[begin:end])
		end = begin - 1
	}
	return out, nil
}
