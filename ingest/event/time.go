package event

import (
	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

const (
	msSecond = 1000
	msMinute = 60 * msSecond
	msHour   = 60 * msMinute
	msDay    = 24 * msHour
)

// Canonical reads a time in exactly the form the recorder writes,
// YYYY-MM-DDTHH:MM:SS.mmmZ, that names a real calendar time. ms counts from
// 1970-01-01T00:00:00Z and is negative before it.
func Canonical(at []byte) (ms int64, ok bool) {
	if len(at) != 24 || at[10] != 'T' || at[19] != '.' || at[23] != 'Z' {
		return 0, false
	}
	day, ok1 := calendar(at)
	time, second, ok2 := clock(at)
	milli, ok3 := number(at[20:23])
	if !ok1 || !ok2 || !ok3 || second > 59 {
		return 0, false
	}
	return day + time + int64(milli), true
}

// Instant reads a time in any form of RFC 3339: with an offset, without a
// fraction or with any number of digits (cut to milliseconds), with small
// letters. A leap second, which may only stand at the end of a month in UTC, is
// the first instant after it.
func Instant(at []byte) (ms int64, ok bool) {
	if len(at) < 20 || at[10]|0x20 != 't' {
		return 0, false
	}
	day, ok1 := calendar(at)
	time, second, ok2 := clock(at)
	if !ok1 || !ok2 {
		return 0, false
	}
	rest := at[19:]
	fraction := int64(0)
	if rest[0] == '.' {
		rest = rest[1:]
		digits := 0
		scale := int64(100)
		for digits < len(rest) && rest[digits]-'0' <= 9 {
			fraction += scale * int64(rest[digits]-'0')
			scale /= 10
			digits++
		}
		if digits == 0 {
			return 0, false
		}
		rest = rest[digits:]
	}
	offset := int64(0)
	switch {
	case len(rest) == 1 && rest[0]|0x20 == 'z':
	case len(rest) == 6 && (rest[0] == '+' || rest[0] == '-') && rest[3] == ':':
		hour, ok1 := number(rest[1:3])
		minute, ok2 := number(rest[4:6])
		if !ok1 || !ok2 || hour > 23 || minute > 59 {
			return 0, false
		}
		offset = int64(hour)*msHour + int64(minute)*msMinute
		if rest[0] == '-' {
			offset = -offset
		}
	default:
		return 0, false
	}
	ms = day + time - offset
	if second == 60 {
		if !firstOfMonth(ms) {
			return 0, false
		}
		fraction = 0
	}
	return ms + fraction, true
}

// calendar reads YYYY-MM-DD, which at is long enough for, as the first
// millisecond of that day.
func calendar(at []byte) (ms int64, ok bool) {
	year, ok1 := number(at[0:4])
	month, ok2 := number(at[5:7])
	day, ok3 := number(at[8:10])
	if !ok1 || !ok2 || !ok3 || at[4] != '-' || at[7] != '-' || month < 1 || month > 12 || day < 1 {
		return 0, false
	}
	days := int(monthDays[month-1])
	if month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		days++
	}
	if day > days {
		return 0, false
	}
	return civil(year, month, day) * msDay, true
}

var monthDays = [12]uint8{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// civil counts the days from 1970-01-01 to a date of the proleptic Gregorian
// calendar. The year is taken to begin in March, so that the leap day is its
// last.
func civil(year, month, day int) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	// 400 years are 146097 days; shifting by them keeps every division
	// positive for the year 0.
	year += 400
	days := 365*year + year/4 - year/100 + year/400 + (153*(month-3)+2)/5 + day - 1
	return int64(days) - 719468 - 146097
}

// date is the inverse of civil.
func date(days int64) (year, month, day int) {
	z := days + 719468 + 146097
	era := z / 146097
	doe := z % 146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = int(doy - (153*mp+2)/5 + 1)
	month = int(mp + 3)
	year = int(yoe + era*400 - 400)
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}

func firstOfMonth(ms int64) bool {
	days := ms / msDay
	if ms%msDay != 0 {
		return false
	}
	_, _, day := date(days)
	return day == 1
}

// clock reads HH:MM:SS after the date and its separator.
func clock(at []byte) (ms int64, second int, ok bool) {
	hour, ok1 := number(at[11:13])
	minute, ok2 := number(at[14:16])
	second, ok3 := number(at[17:19])
	if !ok1 || !ok2 || !ok3 || at[13] != ':' || at[16] != ':' || hour > 23 || minute > 59 || second > 60 {
		return 0, 0, false
	}
	return int64(hour)*msHour + int64(minute)*msMinute + int64(second)*msSecond, second, true
}

// number reads digits only.
func number(s []byte) (v int, ok bool) {
	for _, c := range s {
		c -= '0'
		if c > 9 {
			return 0, false
		}
		v = v*10 + int(c)
	}
	return v, true
}

// A time key that starts with keyText holds a time that is not canonical: those
// sort as text below those that are (trace contract, section 12.3). A canonical
// one is its milliseconds since the year 0, big-endian in keyLength bytes with
// keyBase added, which keeps the first byte above keyText.
const (
	keyText   = 0x00
	keyBase   = 1 << 48
	keyLength = 7
)

// AppendTimeKey appends a key of occurred_at whose byte order is the order of
// the trace contract, section 12.3: canonical times as instants, all others
// below them as text by UTF-16 code unit. "Newest first" is that order
// descending.
func AppendTimeKey(dst, at []byte) []byte {
	ms, ok := Canonical(at)
	if !ok {
		return jsjson.SortKey(append(dst, keyText), at)
	}
	v := uint64(ms - firstMS + keyBase)
	return append(dst, byte(v>>48), byte(v>>40), byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// TimeFromKey appends the text that AppendTimeKey made key of, and nothing for
// bytes that are no such key.
func TimeFromKey(dst, key []byte) []byte {
	if len(key) == 0 {
		return dst
	}
	if key[0] == keyText {
		return jsjson.FromSortKey(dst, key[1:])
	}
	if len(key) != keyLength {
		return dst
	}
	var v int64
	for _, b := range key {
		v = v<<8 | int64(b)
	}
	ms := v - keyBase + firstMS
	if ms < firstMS || ms > lastMS {
		return dst
	}
	days := ms / msDay
	if ms%msDay < 0 {
		days--
	}
	ms -= days * msDay
	year, month, day := date(days)
	dst = appendDigits(dst, year, 4)
	dst = append(dst, '-')
	dst = appendDigits(dst, month, 2)
	dst = append(dst, '-')
	dst = appendDigits(dst, day, 2)
	dst = append(dst, 'T')
	dst = appendDigits(dst, int(ms/msHour), 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, int(ms/msMinute%60), 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, int(ms/msSecond%60), 2)
	dst = append(dst, '.')
	dst = appendDigits(dst, int(ms%msSecond), 3)
	return append(dst, 'Z')
}

// The first and last instants of the years 0000 to 9999.
const (
	firstMS = -62167219200000
	lastMS  = 253402300799999
)

func appendDigits(dst []byte, v, width int) []byte {
	start := len(dst)
	for range width {
		dst = append(dst, '0')
	}
	for i := len(dst) - 1; i >= start; i-- {
		dst[i] = byte('0' + v%10)
		v /= 10
	}
	return dst
}
