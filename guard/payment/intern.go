package payment

import (
	"bytes"
	"hash/maphash"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

// Interner shares what many events repeat: the same resources and names come back
// thousands of times in one run, the same requirements and settlements several
// times in one purchase. It only saves work and memory; facts are the
// same with a nil one. It is for one goroutine and may be kept for the life of
// the process: it forgets by itself.
type Interner struct {
	texts       map[string]string
	payees      map[string]string  // by the text of pay_to
	networks    map[string]network // by that of network
	assets      map[string]string  // by the network, a slash and the text of asset
	urls        map[string]address // by the text of url
	terms       memo[*terms]       // by the source bytes of a requirements object
	offers      memo[*offers]      // by those of accepts
	resources   memo[*resource]    // by those of a resource object
	settlements memo[*settlement]  // by those of a settle object
	objects     memo[bool]         // true of any object without another in it
	doc         jsjson.Doc         // for what recorded meets for the first time
	slab        []byte
}

const (
	maxEntries = 1 << 12 // of a map, before it starts again
	maxKey     = 256     // bytes of a text in a map
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

// forget empties a place whose source turned out to have no value.
func (s *slot[V]) forget() { s.source = s.source[:0] }

// The methods that follow read a text, or remember what it was read as.

func (in *Interner) text(b []byte) string {
	if in == nil {
		return string(b)
	}
	return cached(&in.texts, b, func(s string) string { return s })
}

func (in *Interner) payee(b []byte) string {
	if in == nil {
		return Payee(string(b))
	}
	return cached(&in.payees, b, Payee)
}

// network is what Network gives.
type network struct {
	id    string
	known bool
}

func (in *Interner) network(b []byte) network {
	read := func(word string) (n network) {
		n.id, n.known = Network(word)
		return n
	}
	if in == nil {
		return read(string(b))
	}
	return cached(&in.networks, b, read)
}

// asset is AssetKey for a network that has been read.
func (in *Interner) asset(network string, b []byte) string {
	if in == nil {
		return network + "/" + assetText(string(b))
	}
	var buf [maxKey]byte
	key := append(append(append(buf[:0], network...), '/'), b...)
	return cached(&in.assets, key, func(string) string { return network + "/" + assetText(string(b)) })
}

func (in *Interner) url(b []byte) address {
	read := func(url string) address {
		a := address{url: Resource(url)}
		if h, ok := Host(url); ok {
			a.host = hostName(h)
		}
		return a
	}
	if in == nil {
		return read(string(b))
	}
	return cached(&in.urls, b, read)
}

// cached is what read makes of a text, or made of it before.
func cached[V any](m *map[string]V, b []byte, read func(string) V) V {
	if len(b) > maxKey {
		return read(string(b))
	}
	v, ok := (*m)[string(b)]
	if !ok {
		key := string(b)
		v = read(key)
		put(m, key, v)
	}
	return v
}

// put adds to a map that starts again when it is full.
func put[V any](m *map[string]V, key string, v V) {
	if *m == nil || len(*m) >= maxEntries {
		*m = make(map[string]V, 64)
	}
	(*m)[key] = v
}

// key copies an event's key out of the line.
func (in *Interner) key(k event.Key) event.Key {
	n := len(k.At) + len(k.ID)
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
	buf = append(buf, k.At...)
	buf = append(buf, k.ID...)
	return event.Key{At: buf[:len(k.At):len(k.At)], Seq: k.Seq, ID: buf[len(k.At):]}
}

func (in *Interner) parseTerms(n jsjson.Node) *terms {
	if in == nil {
		return parseTerms(n, in)
	}
	return interned(in, &in.terms, n, parseTerms)
}

func (in *Interner) parseOffers(n jsjson.Node) *offers {
	if in == nil {
		return parseOffers(n, in)
	}
	return interned(in, &in.offers, n, parseOffers)
}

func (in *Interner) parseResource(n jsjson.Node) *resource {
	if in == nil {
		return parseResource(n, in)
	}
	return interned(in, &in.resources, n, parseResource)
}

func (in *Interner) parseSettlement(n jsjson.Node) *settlement {
	if in == nil {
		return parseSettlement(n, in)
	}
	return interned(in, &in.settlements, n, parseSettlement)
}

// interned is what read makes of a value, or made of the same bytes before.
func interned[V any](in *Interner, m *memo[V], n jsjson.Node, read func(jsjson.Node, *Interner) V) V {
	raw := n.Raw()
	if len(raw) > maxCached {
		return read(n, in)
	}
	s, ok := m.find(raw)
	if !ok {
		s.value = read(n, in)
	}
	return s.value
}
