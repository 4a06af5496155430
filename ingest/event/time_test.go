package event_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

const canonical = "2006-01-02T15:04:05.000Z"

func TestCanonicalTimes(t *testing.T) {
	for at, want := range map[string]int64{
		"1970-01-01T00:00:00.000Z": 0, "1969-12-31T23:59:59.999Z": -1, "2026-11-30T09:42:33.789Z": 1796031753789,
		"2024-02-29T00:00:00.000Z": 1709164800000, "2000-02-29T23:59:59.999Z": 951868799999,
		"0000-01-01T00:00:00.000Z": -62167219200000, "9999-12-31T23:59:59.999Z": 253402300799999,
	} {
		if ms, ok := event.Canonical([]byte(at)); !ok || ms != want {
			t.Errorf("%s: got %d, %v; want %d", at, ms, ok, want)
		}
		if ms, ok := event.Instant([]byte(at)); !ok || ms != want {
			t.Errorf("%s as an instant: got %d, %v; want %d", at, ms, ok, want)
		}
	}
	for _, at := range []string{
		"", "2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.00Z", "2026-01-01T00:00:00.0000Z", "2026-01-01T00:00:00.000",
		"2026-01-01T00:00:00.000z", "2026-01-01t00:00:00.000Z", "2026-01-01 00:00:00.000Z", "2026-01-01T00:00:00,000Z",
		"2026-01-01T00:00:00.000+00:00", "2026-13-01T00:00:00.000Z", "2026-00-01T00:00:00.000Z", "2026-01-00T00:00:00.000Z",
		"2026-01-32T00:00:00.000Z", "2026-04-31T00:00:00.000Z", "2026-02-29T00:00:00.000Z", "1900-02-29T00:00:00.000Z",
		"2026-01-01T24:00:00.000Z", "2026-01-01T00:60:00.000Z", "2026-01-01T23:59:60.000Z", "2016-12-31T23:59:60.000Z",
		"+026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.-01Z", "2026-01-01T00:00:00.00 Z", " 2026-01-01T00:00:00.000Z", "2026-1-001T00:00:00.000Z",
		"+012026-01-01T00:00:00.000Z", "２026-01-01T00:00:00.000Z", "2026-01-01T00-00:00.000Z", "2026-01-01T00:00-00.000Z", "2026/01-01T00:00:00.000Z",
	} {
		if ms, ok := event.Canonical([]byte(at)); ok || ms != 0 {
			t.Errorf("%q: got %d, %v; want none", at, ms, ok)
		}
	}
}

func TestInstants(t *testing.T) {
	const ms = 1796031753789
	for at, want := range map[string]int64{
		"2026-11-30T09:42:33.789+00:00":      ms,
		"2026-11-30T09:42:33.789-00:00":      ms,
		"2026-11-30T11:42:33.789+02:00":      ms,
		"2026-11-30T04:12:33.789-05:30":      ms,
		"2026-11-30t09:42:33.789z":           ms,
		"2026-11-30T09:42:33Z":               ms - 789,
		"2026-11-30T09:42:33.7Z":             ms - 89,
		"2026-11-30T09:42:33.78Z":            ms - 9,
		"2026-11-30T09:42:33.7899999999Z":    ms,
		"2026-11-30T09:42:33.789999+00:00":   ms,
		"2026-12-01T00:42:33.789+15:00":      ms,
		"2026-11-29T10:42:33.789-23:00":      ms,
		"2016-12-31T23:59:60Z":               1483228800000,
		"2016-12-31T23:59:60.999Z":           1483228800000,
		"2017-01-01T01:59:60.5+02:00":        1483228800000,
		"0000-01-01T00:00:00+01:00":          -62167219200000 - 3600000,
		"2026-11-30T09:42:33." + nines + "Z": ms + 210,
	} {
		if got, ok := event.Instant([]byte(at)); !ok || got != want {
			t.Errorf("%s: got %d, %v; want %d", at, got, ok, want)
		}
	}
	for _, at := range []string{
		"", "2026-11-30", "2026-11-30T09:42Z", "2026-11-30T09:42:33", "2026-11-30T09:42:33.Z", "2026-11-30T09:42:33.789", "2026-11-30 09:42:33Z",
		"2026-11-30T09:42:33+0000", "2026-11-30T09:42:33+00", "2026-11-30T09:42:33+24:00", "2026-11-30T09:42:33+00:60", "2026-11-30T09:42:33,5Z",
		"2026-11-31T09:42:33Z", "2026-11-30T24:00:00Z", "2026-11-30T09:60:33Z", "2026-11-30T09:42:61Z", "2026-11-30T09:42:60Z", "2026-12-30T23:59:60Z",
		"2026-11-30T09:42:33ZZ", "2026-11-30T09:42:33Z ", "2026-11-30T09:42:33*00:00", "2026-11-30T09:42:33+0a:00", "2026-11-30T09:42:33+00-00",
		"2026-11-30T09:42:33.789+00:0", "Mon, 30 Nov 2026 09:42:33 GMT", "1796031753789",
	} {
		if ms, ok := event.Instant([]byte(at)); ok || ms != 0 {
			t.Errorf("%q: got %d, %v; want none", at, ms, ok)
		}
	}
}

var nines = strings.Repeat("9", 400)

func TestTimesAgreeWithTheStandardLibrary(t *testing.T) {
	// Every day of five centuries, then anything at all.
	for day := int64(-135_000); day < 47_500; day++ {
		checkTime(t, []byte(time.Unix(day*86400, 0).UTC().Format(canonical)))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		ms := r.Int64N(253402300799999+62167219200000) - 62167219200000
		at := time.UnixMilli(ms).UTC().Format(canonical)
		if got, ok := event.Canonical([]byte(at)); !ok || got != ms {
			t.Fatalf("%s: got %d, %v; want %d", at, got, ok, ms)
		}
		checkTime(t, []byte(at))
		digits := []byte(at)
		digits[r.IntN(len(digits))] = "0123456789-:.TZ"[r.IntN(15)]
		checkTime(t, digits)
		checkTime(t, fmt.Appendf(nil, "%s%+03d:%02d", at[:23], r.IntN(48)-24, r.IntN(62)))
	}
}

var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// checkTime holds what is true of any occurred_at: it agrees with the
// standard library where that reads the same language, and its key gives it back.
func checkTime(t *testing.T, at []byte) {
	t.Helper()
	ms, ok := event.Canonical(at)
	instant, isInstant := event.Instant(at)
	if ok && (!isInstant || instant != ms) {
		t.Fatalf("%q is canonical %d but as an instant %d, %v", at, ms, instant, isInstant)
	}
	// The expression keeps out what time.Parse takes beyond RFC 3339 (one digit
	// of hours, a comma for the point, offsets of 24 hours); leap seconds it
	// does not know.
	std, err := time.Parse(time.RFC3339, strings.ToUpper(string(at)))
	want := err == nil && rfc3339.Match(at)
	if !bytes.Contains(at, []byte(":60")) && (isInstant != want || want && instant != std.UnixMilli()) {
		t.Fatalf("%q: got %d, %v; the library says %d, %v", at, instant, isInstant, std.UnixMilli(), want)
	}
	if canon := want && std.UTC().Format(canonical) == string(at); canon != ok {
		t.Fatalf("%q: canonical %v, want %v", at, ok, canon)
	}
	key := event.AppendTimeKey([]byte("k"), at)
	if got := event.TimeFromKey([]byte("t"), key[1:]); string(got) != "t"+string(at) {
		t.Fatalf("the key of %q gives back %q", at, got[1:])
	}
}

func TestTimeKeysOrderInstantsAndOtherTextBelow(t *testing.T) {
	// Ascending, section 12.3.
	order := []string{
		"", "2026-01-01T00:00:00Z", "9999", "yesterday", "\uD7FF", "\xED\xA0\x80", "😀", "\uE000", "ﬀ",
		"0000-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z",
		"2026-01-01T00:00:00.001Z", "9999-12-31T23:59:59.999Z",
	}
	for i := range order {
		for j := range order {
			a, b := event.AppendTimeKey(nil, []byte(order[i])), event.AppendTimeKey(nil, []byte(order[j]))
			want := 0
			if i != j {
				want = 1
				if i < j {
					want = -1
				}
			}
			if got := bytes.Compare(a, b); got != want {
				t.Errorf("keys of %q and %q: %d, want %d", order[i], order[j], got, want)
			}
		}
	}
	if got := event.AppendTimeKey(nil, []byte("0000-01-01T00:00:00.001Z")); !bytes.Equal(got, []byte{1, 0, 0, 0, 0, 0, 1}) {
		t.Errorf("the key of the first millisecond but one is %x", got)
	}
}

func TestBytesThatAreNoTimeKeyGiveNothing(t *testing.T) {
	for _, key := range []string{"", "\x01", "\x01\x80\x00", "\x02\x80\x00\x00\x00\x00\x00", "\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "\x01\x00\x00\x00\x00\x00\x00\x00", "\x01\x80\x00\x00\x00\x00\x00\x00\x00"} {
		if got := event.TimeFromKey(nil, []byte(key)); len(got) != 0 {
			t.Errorf("%x gives %q", key, got)
		}
	}
}

func FuzzTime(f *testing.F) {
	for _, at := range []string{"2026-11-30T09:42:33.789Z", "2026-11-30T09:42:33+02:00", "2016-12-31T23:59:60Z", "yesterday", "\xED\xA0\x80", "😀"} {
		f.Add([]byte(at), []byte(at))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		event.TimeFromKey(nil, a)
		// occurred_at is WTF-8 by the time it gets here.
		a, b = jsjson.ToWTF8(nil, a), jsjson.ToWTF8(nil, b)
		checkTime(t, a)
		checkTime(t, b)
		x, okX := event.Canonical(a)
		y, okY := event.Canonical(b)
		want := jsjson.Compare(a, b)
		switch {
		case okX != okY:
			want = -1
			if okX {
				want = 1
			}
		case okX && x < y:
			want = -1
		case okX && x > y:
			want = 1
		}
		if got := bytes.Compare(event.AppendTimeKey(nil, a), event.AppendTimeKey(nil, b)); got != want {
			t.Fatalf("keys of %q and %q: %d, want %d", a, b, got, want)
		}
	})
}
