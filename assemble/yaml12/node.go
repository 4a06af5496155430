package yaml12

import (
	"bytes"
	"fmt"
	"sort"
)

// Limits on a document. A template is a few kilobytes; these keep a hostile one
// from costing more than its size.
const (
	MaxSize  = 1 << 20 // bytes of a document
	MaxDepth = 500     // collections inside each other
)

// Kind says what a Node is.
type Kind uint8

// The kinds of nodes.
const (
	Scalar Kind = iota
	Mapping
	Sequence

	alias // only while parsing: resolve replaces it by the node it names
)

// Node is one value of a document. An alias is the very Node its anchor names,
// so a document may share nodes, and a collection may contain itself: walk one
// only as deep as you expect it to go.
type Node struct {
	Kind  Kind
	Pairs []Pair  // of a Mapping, in source order; keys differ, aliases aside
	Items []*Node // of a Sequence

	// Value of a Scalar: string (WTF-8), bool, float64, nil or Foreign.
	Value any

	Line, Column int // where the node's content starts; both from 1, Column in bytes

	target *Node // of an alias
	uses   int   // 1 + how often the node's anchor was used, 0 without an anchor
	weight int   // of an anchor's content; -1 when not yet known
}

// Pair is one entry of a Mapping.
type Pair struct{ Key, Value *Node }

// Foreign is the value of a node whose tag names a YAML 1.1 type that the core
// schema lacks, such as !!timestamp. It holds the tag's full name.
type Foreign string

// Get returns the value of the mapping's last entry whose key is the text name,
// or nil.
func (n *Node) Get(name string) *Node {
	for i := len(n.Pairs) - 1; i >= 0; i-- {
		if k := n.Pairs[i].Key; k.Kind == Scalar && k.Value == name {
			return n.Pairs[i].Value
		}
	}
	return nil
}

// Error is a document that cannot be read, and where.
type Error struct {
	Line, Column int // both from 1, Column in bytes
	Reason       string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// Parse reads src, which holds one document in UTF-8 (or WTF-8), and returns its
// root, nil when the document is empty or null. Warnings name what was read but not
// understood, such as an unknown tag. The error is always an *Error.
func Parse(src []byte) (root *Node, warnings []string, err error) {
	p := &parser{src: src, anchors: map[string]*Node{}, handles: map[string]string{"!!": coreTag}}
	defer func() {
		if r := recover(); r != nil {
			failure, ours := r.(*Error)
			if !ours {
				panic(r)
			}
			root, warnings, err = nil, nil, failure
		}
	}()
	if len(src) > MaxSize {
		p.failAt(0, "a document of more than %d bytes", MaxSize)
	}
	root = p.document()
	return root, p.warnings, nil
}

// failAt abandons the document. The panic is caught by Parse: a parser that
// descends this deep would otherwise be mostly error returns.
func (p *parser) failAt(offset int, format string, args ...any) {
	line, column := p.position(offset)
	panic(&Error{Line: line, Column: column, Reason: fmt.Sprintf(format, args...)})
}

func (p *parser) fail(format string, args ...any) { p.failAt(p.pos, format, args...) }

func (p *parser) warn(offset int, format string, args ...any) {
	line, _ := p.position(offset)
	p.warnings = append(p.warnings, fmt.Sprintf("line %d: %s", line, fmt.Sprintf(format, args...)))
}

// position turns an offset into a line and a column.
func (p *parser) position(offset int) (line, column int) {
	if p.lines == nil {
		p.lines = []int{0}
		for i := 0; ; {
			n := bytes.IndexByte(p.src[i:], '\n')
			if n < 0 {
				break
			}
			i += n + 1
			p.lines = append(p.lines, i)
		}
	}
	line = sort.SearchInts(p.lines, offset+1)
	return line, offset - p.lines[line-1] + 1
}
