package assemble

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// Built is a run that was assembled, for AppendBuild. ID and Path are WTF-8.
type Built struct {
	ID   string
	Path string
	Run  *Run
}

// AppendBuild appends the document that `build --json` prints, final line feed
// included (trace contract, section 6). status is "", "full" or "partial" and
// only filters what is shown: a run's count of assembled operations stays.
func AppendBuild(dst []byte, runs []Built, r *Resolved, status string) []byte {
	w := writer{dst: dst, indent: 2}
	w.open('{')
	w.runs(runs, status, true)
	w.key("template")
	w.open('{')
	w.key("name")
	w.text(r.Ref)
	w.key("path")
	w.text(r.Path)
	w.key("origin")
	w.text(string(r.Origin))
	w.close('}')
	w.close('}')
	return append(w.dst, '\n')
}

func (w *writer) runs(runs []Built, status string, paths bool) {
	w.key("runs")
	w.open('[')
	for _, b := range runs {
		w.item()
		w.open('{')
		w.key("run")
		w.text(b.ID)
		if paths {
			w.key("path")
			w.text(b.Path)
		}
		w.key("assembled")
		w.dst = jsjson.AppendNumber(w.dst, float64(len(b.Run.Receipts)))
		w.key("receipts")
		w.open('[')
		for _, r := range b.Run.Receipts {
			if status == "" || status == r.Completeness() {
				w.item()
				w.dst = r.Append(w.dst, w.indent, w.depth)
			}
		}
		w.close(']')
		w.key("unassigned")
		w.open('[')
		doc := docs.Get().(*jsjson.Doc)
		for _, line := range b.Run.Unassigned {
			w.item()
			e := event{line: line}
			w.dst = e.root(doc).Append(w.dst, w.indent, w.depth)
		}
		docs.Put(doc)
		w.close(']')
		w.close('}')
	}
	w.close(']')
}

// FileName is the name a receipt is stored under (trace contract, section 7).
// run and op are WTF-8; a null operation is filed as "operation".
func FileName(run, op []byte, null bool) string {
	if null {
		op = []byte("operation")
	}
	name := append(appendFileName(nil, run), '~')
	return string(append(appendFileName(name, op), ".json"...))
}

func appendFileName(dst, id []byte) []byte {
	for i := 0; i < len(id); {
		c := id[i]
		if c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(id[i:])
		if r == utf8.RuneError && n == 1 && c == 0xED && i+2 < len(id) { // a lone surrogate
			r, n = 0xD000|rune(id[i+1]&0x3F)<<6|rune(id[i+2]&0x3F), 3
		}
		if high, low := utf16.EncodeRune(r); r > 0xFFFF {
			dst = fmt.Appendf(dst, "%%%04X%%%04X", high, low)
		} else {
			dst = fmt.Appendf(dst, "%%%04X", r)
		}
		i += n
	}
	return dst
}
