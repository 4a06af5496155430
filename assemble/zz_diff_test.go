package assemble

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

func TestZZDiff(t *testing.T) {
	f, err := os.Open(os.Getenv("HELD"))
	if err != nil {
		t.Skip()
	}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<26)
	n, errs, diff := 0, 0, 0
	for sc.Scan() {
		var c struct {
			Template  string
			Run, Want []byte
		}
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		n++
		tp, _, err := ParseTemplate([]byte(c.Template))
		if err != nil {
			t.Fatal(err)
		}
		run, err := Assemble(tp, c.Run)
		got := ""
		if err != nil {
			errs++
			got = fmt.Sprint("error ", err.(*LineError).Line)
		} else {
			got = string(document([]Built{{ID: "r", Run: run}}))
			checkJudge(t, tp, run)
			checkOne(t, tp, c.Run, run)
		}
		if got != string(c.Want) {
			diff++
			if diff < 4 {
				t.Errorf("%s\n%q\n%s\nwant %s\n got %s", c.Template, c.Run, firstDifference([]byte(got), c.Want), c.Want, got)
			}
		}
	}
	t.Logf("%d runs, %d refused, %d differ", n, errs, diff)
}
