package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const aUUID = "0191e5b0-1111-7222-8333-44445555666f"

func TestOnlyUUIDsInTheirOneSpellingArePacked(t *testing.T) {
	if n := len(packKey([]byte(aUUID))); n != 17 {
		t.Errorf("a UUID takes %d bytes", n)
	}
	for _, key := range []string{"", "op1", "0191E5B0-1111-7222-8333-44445555666F", "0191e5b0-1111-7222-8333-44445555666", aUUID + "0", "0191e5b0x1111-7222-8333-44445555666f",
		"0191e5b0-1111-7222-8333-44445555666g", "{191e5b0-1111-7222-8333-44445555666f", "\xff234567890123456"} {
		if got := packKey([]byte(key)); string(got) != key {
			t.Errorf("%q is stored as %q", key, got)
		}
	}
}

func FuzzPackedKeys(f *testing.F) {
	f.Add([]byte(aUUID))
	f.Add([]byte("op1"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, key []byte) {
		if len(key) > 0 && key[0] == packedKey {
			return // no encoding of text begins so
		}
		if got := unpackKey(packKey(key)); !bytes.Equal(got, key) {
			t.Errorf("%q comes back as %q", key, got)
		}
	})
}

// Lists are ordered by id where the times are equal: by the text of it, packed or
// not.
func TestPackedIdsKeepTheirPlaceInLists(t *testing.T) {
	x := open(t)
	ctx := context.Background()
	var want []string
	for i := range 40 {
		key := fmt.Sprintf("%08x-1111-7222-8333-444455556666", i*0x1234567%0xfffffff)
		if i%3 == 0 {
			key = fmt.Sprintf("%d-other", i)
		}
		want = append(want, key)
	}
	if err := x.Write(ctx, func(tx *Tx) error {
		run := &Run{File: []byte("r"), FileKey: []byte("r"), Key: []byte("r")}
		if err := tx.PutRun(run); err != nil {
			return err
		}
		for _, key := range want {
			if _, err := tx.Put(&Operation{Run: run.No, Key: []byte(key), Last: []byte{1}, Spans: []byte{}}, nil); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Reverse(want)
	var got []string
	if err := x.Read(ctx, func(v *View) error {
		f := Filter{Limit: 7}
		for {
			found, err := v.List(f, nil, 0)
			if err != nil || len(found) == 0 {
				return err
			}
			for _, r := range found {
				got = append(got, string(r.Op))
			}
			after := found[len(found)-1].Position
			f.After = &after
		}
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the list is\n%q, want\n%q", got, want)
	}
	if err := x.Read(ctx, func(v *View) error {
		i := slices.IndexFunc(want, func(key string) bool { return len(key) == len(aUUID) })
		prefix := want[i][:11]
		keys, err := v.WithPrefix(1, []byte(prefix), 5)
		if len(keys) != 1 || string(keys[0]) != want[i] {
			t.Errorf("%q begins %q", prefix, keys)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestAKeySpelledInSQLIsTheKey(t *testing.T) {
	x := open(t)
	rapid.Check(t, func(t *rapid.T) {
		key := []byte(rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)).Draw(t, "key"))
		if err := x.Read(context.Background(), func(v *View) error {
			var got []byte
			err := v.row(v.ctx, "SELECT "+keyText("k.key")+" FROM (SELECT ? AS key) k", packKey(key)).Scan(&got)
			if !bytes.Equal(got, key) {
				t.Errorf("%q is spelled %q", key, got)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// A host may sell through a new address each time, so its history is in as many
// name sets as it has payments.
func TestHistoryOfNamesInVeryManySets(t *testing.T) {
	x := open(t)
	ctx := context.Background()
	const n = 700
	if err := x.Write(ctx, func(tx *Tx) error {
		run := &Run{File: []byte("r"), FileKey: []byte("r"), Key: []byte("r")}
		if err := tx.PutRun(run); err != nil {
			return err
		}
		for i := range n {
			names := []string{fmt.Sprintf("0x%d", i), "a.example"}
			if i%2 == 0 {
				names = append(names, "b.example")
			}
			if i%100 == 0 {
				names = append(names, "0xshared")
			}
			if _, err := tx.Put(&Operation{Run: run.No, Key: fmt.Appendf(nil, "op%d", i), Last: []byte{1}, Spans: []byte{}, Names: names}, nil); err != nil {
				return err
			}
		}
		_, err := tx.Put(&Operation{Run: run.No, Key: []byte("alone"), Last: []byte{1}, Spans: []byte{}, Names: []string{"0xshared"}}, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		names []string
		want  int64
	}{
		{[]string{"a.example"}, n},
		{[]string{"b.example"}, n / 2},
		{[]string{"0x7"}, 1},
		{[]string{"0x7", "a.example"}, n},
		{[]string{"a.example", "b.example"}, n},
		{[]string{"b.example", "0xshared", "0x1"}, n/2 + 2},
		{[]string{"0xshared", "a.example", "b.example"}, n + 1},
		{[]string{"0x1", "0x2", "0x3"}, 3},
		{[]string{"never"}, 0},
		{nil, 0},
	} {
		if err := x.Read(ctx, func(v *View) error {
			numbers, err := v.WordNumbers(c.names)
			if err != nil {
				return err
			}
			counts, err := v.HistoryOf(numbers)
			var got int64
			for _, k := range counts {
				got += k.N
			}
			if got != c.want {
				t.Errorf("%d operations carry one of %q, want %d", got, c.names, c.want)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNumbersOfOperationsAreNotGivenTwice(t *testing.T) {
	x := open(t)
	ctx := context.Background()
	var first int64
	for range 2 {
		if err := x.Write(ctx, func(tx *Tx) error {
			run := &Run{File: []byte("r"), FileKey: []byte("r"), Key: []byte("r")}
			if err := tx.PutRun(run); err != nil {
				return err
			}
			op := &Operation{Run: run.No, Key: []byte("op"), Last: []byte{1}, Spans: []byte{}}
			if _, err := tx.Put(op, nil); err != nil {
				return err
			}
			if op.No == first {
				t.Errorf("another operation got the number %d", first)
			}
			first = op.No
			return tx.DropRun(run.No)
		}); err != nil {
			t.Fatal(err)
		}
	}
}
