package payment

import (
	"bytes"
	"hash/maphash"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

// Interner shares what many events repeat: the same requirements, offers,
// resources and names come back thousands of times in one run, the same payload
// several times in one purchase. It only saves work and memory; facts are the
// same with a nil one. It is for one goroutine and may be kept for the life of
// the process: it forgets by itself.
type Interner struct {
	texts     map[string]string
	payloads  memo[sketch]    // by the source bytes of a payload
	terms     memo[*terms]    // by those of a requirements object
	offers    memo[*offers]   // by those of accepts
	resources memo[*resource] // by those of a resource object
	slab      []byte
}

const (
	maxEntries = 1 << 12 // of texts, before they start again
	maxCached  = 2048    // bytes of a value that is looked up by its source
	slabSize   = 4096
	maxInSlab  = 256
)

// memo remembers what was made of source bytes seen lately. Each hash has one
// place, so nothing has to be cleared and memory stays what it is.
type memo[V any] struct {
	seed  maphash.Seed
	slots []slot[V]
}

type slot[V any] struct {
	hash   uint64
	source []byte
	value  V
}

const slots = 512 // a power of two

// find gives the place of source, and whether its value is there.
func (m *memo[V]) find(source []byte) (*slot[V], bool) {
	if m.slots == nil {
		m.seed, m.slots = maphash.MakeSeed(), make([]slot[V], slots)
	}
	h := maphash.Bytes(m.seed, source)
	s := &m.slots[h%slots]
	if s.hash == h && bytes.Equal(s.source, source) {
		return s, true
	}
	s.hash, s.source = h, append(s.source[:0], source...)
	return s, false
}

func (in *Interner) text(b []byte) string {
	if in == nil || len(b) > 256 {
		return string(b)
	}
	if s, ok := in.texts[string(b)]; ok {
		return s
	}
	s := string(b)
	put(&in.texts, s, s)
	return s
}

// put adds to a cache that starts again when it is full.
func put[V any](m *map[string]V, key string, v V) {
	if *m == nil || len(*m) >= maxEntries {
		*m = make(map[string]V, 64)
	}
	(*m)[key] = v
}

// key copies an event's key out of the line.
func (in *Interner) key(e event.Event) event.Key {
	n := len(e.At) + len(e.ID)
	var buf []byte
	if in == nil || n > maxInSlab {
		buf = make([]byte, 0, n)
	} else {
		if cap(in.slab)-len(in.slab) < n {
			in.slab = make([]byte, 0, slabSize)
		}
		start := len(in.slab)
		in.slab = in.slab[:start+n]
		buf = in.slab[start : start : start+n]
	}
	buf = append(buf, e.At...)
	buf = append(buf, e.ID...)
	return event.Key{At: buf[:len(e.At):len(e.At)], Seq: e.Seq, ID: buf[len(e.At):]}
}

func (in *Interner) parseTerms(n jsjson.Node) *terms {
	raw := n.Raw()
	if in == nil || len(raw) > maxCached {
		return parseTerms(n, in)
	}
	s, ok := in.terms.find(raw)
	if !ok {
		s.value = parseTerms(n, in)
	}
	return s.value
}

func (in *Interner) parseOffers(n jsjson.Node) *offers {
	raw := n.Raw()
	if in == nil || len(raw) > maxCached {
		return parseOffers(n, in)
	}
	s, ok := in.offers.find(raw)
	if !ok {
		s.value = parseOffers(n, in)
	}
	return s.value
}

func (in *Interner) parseResource(n jsjson.Node) *resource {
	raw := n.Raw()
	if in == nil || len(raw) > maxCached {
		return parseResource(n, in)
	}
	s, ok := in.resources.find(raw)
	if !ok {
		s.value = parseResource(n, in)
	}
	return s.value
}
