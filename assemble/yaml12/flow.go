package yaml12

import "bytes"

// flow reads the flow collection at pos into n. Lines after the first must be
// indented by need.
func (p *parser) flow(n *Node, need int) {
	p.enter()
	defer p.leave()
	n.Kind = Sequence
	closing := byte(']')
	if p.peek() == '{' {
		n.Kind = Mapping
		closing = '}'
	}
	p.level++
	p.takeFlow()
	seen := keys{}
	for {
		p.flowSkip(need)
		if p.peek() == closing {
			break
		}
		p.flowEntry(n, seen, need)
		p.flowSkip(need)
		if p.peek() != ',' {
			break
		}
		p.takeFlow()
	}
	if p.peek() != closing {
		p.fail("expected %q or %q in a flow collection", ",", string(closing))
	}
	p.takeFlow()
	p.level--
	p.jsonKey = true
}

// takeFlow consumes a one-byte token inside a flow collection.
func (p *parser) takeFlow() {
	p.take(1)
	p.jsonKey = false
}

// flowEntry reads one entry, up to the comma or the bracket behind it.
func (p *parser) flowEntry(n *Node, seen keys, need int) {
	q := p.flowProps(need)
	explicit := p.flowIndicator('?')
	if explicit {
		if q.any() {
			p.fail("an anchor or a tag must follow the %q", "?")
		}
		p.takeFlow()
		p.flowSkip(need)
		q = p.flowProps(need)
	}
	content := p.pos
	key, r := p.flowValue(q, need)
	if p.pos == content && !explicit && !q.any() && !p.flowColon() {
		p.fail("an empty entry in a flow collection")
	}
	p.flowSkip(need)
	if !p.flowColon() {
		key = p.finish(key, r, q)
		switch {
		case n.Kind == Mapping:
			p.unique(seen, key)
			n.Pairs = append(n.Pairs, Pair{key, p.node(props{})})
		case explicit:
			n.Items = append(n.Items, p.pair(key, p.node(props{})))
		default:
			n.Items = append(n.Items, key)
		}
		return
	}
	if n.Kind == Sequence && !explicit {
		if bytes.IndexByte(p.src[content:p.pos], '\n') >= 0 {
			p.failAt(content, "a key must stand on one line")
		}
		if q.any() {
			content = q.start
		}
		if units(p.src[content:p.pos]) > 1024 {
			p.failAt(content, "a key of more than 1024 characters")
		}
	}
	key = p.finish(key, r, q)
	if n.Kind == Mapping {
		p.unique(seen, key)
	}
	p.takeFlow()
	p.flowSkip(need)
	q = p.flowProps(need)
	value, r := p.flowValue(q, need)
	value = p.finish(value, r, q)
	if n.Kind == Mapping {
		n.Pairs = append(n.Pairs, Pair{key, value})
	} else {
		n.Items = append(n.Items, p.pair(key, value))
	}
}

// pair makes the mapping that a lone "key: value" in a list is.
func (p *parser) pair(key, value *Node) *Node {
	return &Node{Kind: Mapping, Pairs: []Pair{{key, value}}, Line: key.Line, Column: key.Column}
}

// flowValue reads a node inside a flow collection; it may be empty.
func (p *parser) flowValue(q props, need int) (*Node, raw) {
	n := p.node(q)
	switch c := p.peek(); {
	case c == ',' || c == ']' || c == '}' || p.flowColon():
		return n, raw{}
	case p.flowIndicator('-'), p.flowIndicator('?'):
		p.fail("%q is not allowed here in a flow collection", string(c))
	}
	return n, p.flowNode(n, need)
}

func (p *parser) flowProps(need int) props {
	var q props
	for p.peek() == '&' || p.peek() == '!' {
		p.property(&q)
		p.flowSkip(need)
	}
	return q
}

// flowIndicator reports whether pos is at the indicator c inside a flow
// collection.
func (p *parser) flowIndicator(c byte) bool {
	return p.peek() == c && (p.blankAt(p.pos+1) || isFlowIndicator(p.src[p.pos+1]))
}

// flowColon reports whether pos is at a ":" between key and value. Behind a
// quoted text or a closed collection it needs no space after it, as in JSON.
func (p *parser) flowColon() bool {
	return p.flowIndicator(':') || p.jsonKey && p.peek() == ':'
}

// flowSkip moves to the next token inside a flow collection.
func (p *parser) flowSkip(need int) {
	newline, indent := false, 0
	for ; ; p.gap.space = true {
		if p.eof() {
			p.fail("a flow collection is not closed")
		}
		if n := p.breakAt(p.pos); n > 0 {
			p.pos += n
			newline, indent = true, 0
			for p.peek() == ' ' {
				p.pos++
				indent++
			}
			continue
		}
		switch p.src[p.pos] {
		case ' ', '\t':
			p.pos++
			continue
		case '#':
			if !p.gap.space {
				p.fail("a comment must be set off by white space")
			}
			if n := bytes.IndexByte(p.src[p.pos:], '\n'); n >= 0 {
				p.pos += n
			} else {
				p.pos = len(p.src)
			}
			continue
		}
		break
	}
	if !newline {
		return
	}
	// The last bracket may stand as far left as what the collection belongs to.
	c := p.peek()
	last := p.level == 1 && indent == need-1 && (c == ']' || c == '}')
	if indent < need && !last {
		p.fail("a flow collection whose lines are indented too little")
	}
	if indent == 0 && p.markerAt(p.pos) {
		p.fail("a flow collection is not closed")
	}
}

func isFlowIndicator(c byte) bool {
	switch c {
	case ',', '[', ']', '{', '}':
		return true
	}
	return false
}
