package store

import (
	"errors"
	"testing"
)

func TestWhatWasLearntOfAnotherFillingIsForgotten(t *testing.T) {
	x := open(t)
	fill := func(kind string, words ...string) {
		t.Helper()
		err := x.Write(t.Context(), func(tx *Tx) error {
			err := tx.Clear()
			for _, w := range words {
				_, werr := tx.wordNumber(w)
				err = errors.Join(err, werr)
			}
			_, terr := tx.Type(Type{EventType: kind})
			return errors.Join(err, terr)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func(fn func(*View) error) {
		t.Helper()
		if err := x.Read(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	fill("first", "a", "b")
	read(func(before *View) error {
		a, err := before.Word("a")
		if err != nil || a == 0 {
			t.Fatal(a, err)
		}
		if c, err := before.Word("c"); err != nil || c != 0 {
			t.Error(c, err)
		}
		fill("second", "c", "a")
		read(func(after *View) error {
			c, err := after.Word("c")
			if err != nil || c != a {
				t.Errorf("c has number %d, want the one that a had (%v)", c, err)
			}
			if b, err := after.Word("b"); err != nil || b != 0 {
				t.Error(b, err)
			}
			_, types, err := after.Shapes()
			if err != nil || len(types) != 1 || types[1].EventType != "second" {
				t.Errorf("types %v, %v", types, err)
			}
			return err
		})
		// The older snapshot still answers of its own filling.
		if n, err := before.Word("a"); err != nil || n != a {
			t.Error(n, err)
		}
		_, types, err := before.Shapes()
		if err != nil || len(types) != 1 || types[1].EventType != "first" {
			t.Errorf("types %v, %v", types, err)
		}
		return err
	})
}

func TestAWordIsFoundOnceItIsThere(t *testing.T) {
	x := open(t)
	for _, want := range []bool{false, true} {
		if err := x.Read(t.Context(), func(v *View) error {
			if n, err := v.Word("late"); err != nil || (n != 0) != want {
				t.Errorf("number %d, known %t (%v)", n, want, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := x.Write(t.Context(), func(tx *Tx) error { _, err := tx.wordNumber("late"); return err }); err != nil {
			t.Fatal(err)
		}
	}
}
