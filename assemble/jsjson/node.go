package jsjson

import (
	"iter"
	"math"
	"unicode/utf8"
)

// Node is one value of a document, or a member name. The zero value is absent,
// and every method of an absent node answers as for something that is not there.
// A node is cheap to copy and valid until the next Parse of its Doc.
type Node struct {
	doc *Doc
	at  int32
}

// entry must not be called on an absent node.
func (n Node) entry() *entry { return &n.doc.nodes[n.at] }

// Kind says what the node is.
func (n Node) Kind() Kind {
	if n.doc == nil {
		return Absent
	}
	return n.entry().kind
}

// Raw is the value as it stands in the source, without white space around it;
// nil when absent.
func (n Node) Raw() []byte {
	if n.doc == nil {
		return nil
	}
	e := n.entry()
	return n.doc.src[e.start:e.end:e.end]
}

// Text is the decoded text of a string as WTF-8: escapes resolved, adjacent
// escaped halves of a pair joined, lone surrogates as three bytes, ill-formed
// UTF-8 as U+FFFD. It is part of the source when nothing needed decoding, so it
// must not be changed. It is nil for other kinds and never nil for a string.
func (n Node) Text() []byte {
	if n.doc == nil {
		return nil
	}
	e := n.entry()
	if e.kind != String {
		return nil
	}
	if e.flags == 0 {
		return n.doc.src[e.start+1 : e.end-1 : e.end-1]
	}
	return n.doc.text(e, nil)
}

// text is the decoded text of a string node, in the source when it can be and
// appended to buf otherwise.
func (d *Doc) text(e *entry, buf []byte) []byte {
	s := d.src[e.start+1 : e.end-1 : e.end-1]
	if e.flags == 0 || e.flags == flagHigh && utf8.Valid(s) {
		return s
	}
	if buf == nil {
		// Decoded text is at most three times as long: one ill-formed byte
		// becomes U+FFFD. Mostly it is shorter.
		buf = make([]byte, 0, len(s))
	}
	return appendText(buf, s)
}

// Bool is the value of a boolean; false for other kinds.
func (n Node) Bool() bool {
	return n.Kind() == Bool && n.doc.src[n.entry().start] == 't'
}

// Float is the double an ECMAScript engine holds for a number: rounded to even,
// infinite on overflow. NaN for other kinds.
func (n Node) Float() float64 {
	if n.Kind() != Number {
		return math.NaN()
	}
	return parseNumber(n.Raw())
}

// is reports whether a member name is name. The names of interest are short, so
// decoding happens on the stack.
func (d *Doc) is(e *entry, name string) bool {
	if e.flags == 0 {
		return string(d.src[e.start+1:e.end-1]) == name
	}
	var buf [64]byte
	return string(d.text(e, buf[:0])) == name
}

// Get is the member of an object with the given name (WTF-8, after decoding).
// When it is repeated the last copy counts, as in JSON.parse. It is absent when
// there is none or the node is no object.
func (n Node) Get(name string) Node {
	if n.Kind() != Object {
		return Node{}
	}
	found := Node{}
	d := n.doc
	end := d.nodes[n.at].next
	for k := uint32(n.at) + 1; k < end; k = d.nodes[k+1].next {
		if d.is(&d.nodes[k], name) {
			found = Node{d, int32(k + 1)}
		}
	}
	return found
}

// Find is Get that also counts: copies is the number of members of exactly that
// name, variants the number of those whose name differs from it but is equal
// under Unicode simple case folding (one code point against one, so the Kelvin
// sign is a k).
func (n Node) Find(name string) (v Node, copies, variants int) {
	if n.Kind() != Object {
		return Node{}, 0, 0
	}
	d := n.doc
	end := d.nodes[n.at].next
	for k := uint32(n.at) + 1; k < end; k = d.nodes[k+1].next {
		e := &d.nodes[k]
		if e.flags == 0 && int(e.end-e.start)-2 != len(name) && ascii(name) {
			continue // ASCII folds to ASCII only when lengths agree
		}
		var buf [64]byte
		text := d.text(e, buf[:0])
		switch {
		case string(text) == name:
			v = Node{d, int32(k + 1)}
			copies++
		case equalFold(text, name):
			variants++
		}
	}
	return v, copies, variants
}

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Members yields the members of an object in source order, repeated names
// included, as name (a String node) and value. It yields nothing for other
// kinds.
func (n Node) Members() iter.Seq2[Node, Node] {
	return func(yield func(Node, Node) bool) {
		if n.Kind() != Object {
			return
		}
		d := n.doc
		end := d.nodes[n.at].next
		for k := uint32(n.at) + 1; k < end; k = d.nodes[k+1].next {
			if !yield(Node{d, int32(k)}, Node{d, int32(k + 1)}) {
				return
			}
		}
	}
}

// Elements yields the elements of an array in order, and nothing for other
// kinds.
func (n Node) Elements() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		if n.Kind() != Array {
			return
		}
		d := n.doc
		end := d.nodes[n.at].next
		for k := uint32(n.at) + 1; k < end; k = d.nodes[k].next {
			if !yield(Node{d, int32(k)}) {
				return
			}
		}
	}
}
