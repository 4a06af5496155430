package payment

import (
	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

// Interner shares what many events repeat: the same requirements, offers,
// resources and names come back thousands of times in one run. It only saves
// work and memory; facts are the same with a nil one. It is for one goroutine
// and may be kept for the life of the process: it forgets when it gets large.
type Interner struct {
	texts     map[string]string
	terms     map[string]*terms    // by the source bytes of a requirements object
	offers    map[string]*offers   // by the source bytes of accepts
	resources map[string]*resource // by the source bytes of a resource object
	slab      []byte
}

const (
	maxEntries = 1 << 11 // of each map, before it starts again: what repeats does so soon
	maxCached  = 2048    // bytes of a value that is looked up by its source
	slabSize   = 4096
	maxInSlab  = 256
)

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
	if t, ok := in.terms[string(raw)]; ok {
		return t
	}
	t := parseTerms(n, in)
	put(&in.terms, string(raw), t)
	return t
}

func (in *Interner) parseOffers(n jsjson.Node) *offers {
	raw := n.Raw()
	if in == nil || len(raw) > maxCached {
		return parseOffers(n, in)
	}
	if o, ok := in.offers[string(raw)]; ok {
		return o
	}
	o := parseOffers(n, in)
	put(&in.offers, string(raw), o)
	return o
}

func (in *Interner) parseResource(n jsjson.Node) *resource {
	raw := n.Raw()
	if in == nil || len(raw) > maxCached {
		return parseResource(n, in)
	}
	if r, ok := in.resources[string(raw)]; ok {
		return r
	}
	r := parseResource(n, in)
	put(&in.resources, string(raw), r)
	return r
}
