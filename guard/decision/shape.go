package decision

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// shape is what a value of a line has to look like to be exactly what encoding a
// Go value of its type gives: encoding/json itself, when it reads, overlooks
// members it does not know, letter case, null, and members that are missing. A
// member that nobody knows may have been meant to tighten.
type shape struct {
	kind    jsjson.Kind
	time    bool // a string in the form of an instant
	bits    int  // of a number; negative for an unsigned one
	null    bool // may be null instead
	members map[string]member
	needed  int // members that are not optional
	elem    *shape
}

type member struct {
	shape    *shape
	optional bool // left out when empty
	pointer  bool // only a nil pointer is empty; else what is there is not empty
}

// shapes are those of the types of lines.
var shapes = func() map[string]*shape {
	all := map[string]*shape{}
	for kind, fresh := range kinds {
		all[kind] = shapeOf(reflect.TypeOf(fresh()).Elem())
	}
	return all
}()

func shapeOf(t reflect.Type) *shape {
	if t == reflect.TypeFor[time.Time]() {
		return &shape{kind: jsjson.String, time: true}
	}
	switch t.Kind() {
	case reflect.String:
		return &shape{kind: jsjson.String}
	case reflect.Int, reflect.Int64:
		return &shape{kind: jsjson.Number, bits: 64}
	case reflect.Uint32:
		return &shape{kind: jsjson.Number, bits: -32}
	case reflect.Pointer:
		s := shapeOf(t.Elem())
		s.null = true
		return s
	case reflect.Slice:
		return &shape{kind: jsjson.Array, elem: shapeOf(t.Elem())}
	case reflect.Struct:
		s := &shape{kind: jsjson.Object, members: map[string]member{}}
		s.fields(t)
		return s
	}
	panic("decision: a line cannot hold a " + t.String())
}

func (s *shape) fields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" {
			s.fields(f.Type)
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		if name == "-" {
			continue
		}
		if name == "" {
			panic("decision: " + t.String() + "." + f.Name + " has no name in a line")
		}
		m := member{shapeOf(f.Type), option == "omitempty", f.Type.Kind() == reflect.Pointer}
		if m.optional {
			m.shape.null = false
		} else {
			s.needed++
		}
		s.members[name] = m
	}
}

// check holds the members of a line to the shape of its type, which is this. It
// gives the first that does not fit.
func (s *shape) check(root jsjson.Node) (name string, ok bool) {
	needed := 0
	for key, v := range root.Members() {
		m, known := s.members[string(key.Text())]
		if !known {
			if isEnvelope(key.Text()) {
				continue
			}
			return string(key.Text()), false
		}
		if !m.holds(v) {
			return string(key.Text()), false
		}
		if !m.optional {
			needed++
		}
	}
	if needed == s.needed {
		return "", true
	}
	for key, m := range s.members {
		if !m.optional && absent(root, key) {
			name = max(name, key)
		}
	}
	return name, false
}

func isEnvelope(key []byte) bool {
	switch string(key) {
	case "actor", "at", "more", "prev", "seq", "sig", "type":
		return true
	}
	return false
}

func (m member) holds(v jsjson.Node) bool {
	if !m.shape.holds(v) {
		return false
	}
	if !m.optional || m.pointer {
		return true
	}
	switch m.shape.kind {
	case jsjson.String:
		return len(v.Text()) > 0
	case jsjson.Number:
		return string(v.Raw()) != "0"
	case jsjson.Array:
		for range v.Elements() {
			return true
		}
		return false
	}
	return true
}

func (s *shape) holds(v jsjson.Node) bool {
	if v.Kind() != s.kind {
		return s.null && v.Kind() == jsjson.Null
	}
	switch s.kind {
	case jsjson.String:
		if !s.time {
			return true
		}
		t, err := time.Parse(stampForm, string(v.Text()))
		return err == nil && stamp(t) == string(v.Text())
	case jsjson.Number:
		if s.bits < 0 {
			_, err := strconv.ParseUint(string(v.Raw()), 10, -s.bits)
			return err == nil
		}
		_, err := strconv.ParseInt(string(v.Raw()), 10, s.bits)
		return err == nil
	case jsjson.Array:
		for e := range v.Elements() {
			if !s.elem.holds(e) {
				return false
			}
		}
		return true
	case jsjson.Object:
		needed := 0
		for key, e := range v.Members() {
			m, known := s.members[string(key.Text())]
			if !known || !m.holds(e) {
				return false
			}
			if !m.optional {
				needed++
			}
		}
		return needed == s.needed
	}
	return false
}
