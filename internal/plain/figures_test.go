package plain

import "testing"

func TestTextIsCountedAsAFormCountsIt(t *testing.T) {
	for text, want := range map[string]int{"": 0, "note": 4, "жж": 2, "日本": 2, "😀": 2, "e\u0301": 2, "a\xffb": 3, "\U0010ffff": 2} {
		if got := Units(text); got != want {
			t.Errorf("Units(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1: "-1", -123456: "-123,456"} {
		if got := Number(n); got != want {
			t.Errorf("Number(%d) = %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 1<<63 - 1: "8.0 EiB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %s, want %s", n, got, want)
		}
	}
	if got := Plural(1, "run") + ", " + Plural(0, "run") + ", " + Plural(1200, "run"); got != "1 run, 0 runs, 1,200 runs" {
		t.Error(got)
	}
}
