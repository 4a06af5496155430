package mcp

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plainSplit is what splitter must do, with the whole stream in memory.
func plainSplit(stream []byte, max int) (lines []string) {
	pieces := bytes.Split(stream, []byte("\n"))
	for i, piece := range pieces {
		last := i == len(pieces)-1
		switch {
		case len(piece) > max:
			lines = append(lines, "TOO LONG")
		case last && len(piece) == 0:
		default:
			lines = append(lines, "line "+string(piece))
		}
	}
	return lines
}

func split(stream []byte, most, chunk int) (lines []string, largest int) {
	s := splitter{max: most}
	add := func(line []byte) { lines = append(lines, "line "+string(line)) }
	for len(stream) > 0 {
		n := min(chunk, len(stream))
		s.feed(stream[:n], add, func() { lines = append(lines, "TOO LONG") })
		largest = max(largest, len(s.partial))
		stream = stream[n:]
	}
	s.end(add)
	return lines, largest
}

func TestSplitter(t *testing.T) {
	for name, stream := range map[string]string{
		"nothing":                           "",
		"one line":                          "a\n",
		"a last line without its line feed": "a\nbc",
		"blank lines are lines":             "\n\na\n\n",
		"a line of exactly the cap":         "12345678\n12345678",
		"a line over the cap":               "123456789\nx\n",
		"a line far over the cap":           "12345678901234567890123456789\nx\n",
		"a last line over the cap":          "x\n1234567890",
		"a carriage return is kept":         "a\r\nb\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			for chunk := 1; chunk < 12; chunk++ {
				got, largest := split([]byte(stream), 8, chunk)
				if diff := cmp.Diff(plainSplit([]byte(stream), 8), got); diff != "" {
					t.Errorf("chunks of %d:\n%s", chunk, diff)
				}
				if largest > 8 {
					t.Errorf("chunks of %d: %d bytes were buffered, the cap is 8", chunk, largest)
				}
			}
		})
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), 2, 3)
	f.Add([]byte("\n"), 0, 1)
	f.Fuzz(func(t *testing.T, stream []byte, max, chunk int) {
		if max < 0 || max > 1<<20 || chunk < 1 {
			t.Skip()
		}
		got, largest := split(stream, max, chunk)
		if diff := cmp.Diff(plainSplit(stream, max), got); diff != "" {
			t.Error(diff)
		}
		if largest > max {
			t.Errorf("%d bytes were buffered, the cap is %d", largest, max)
		}
	})
}
