package main

import (
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/settlewatch/settlewatch/ingest"
)

// progress shows a bar on a terminal for work of over a second. Elsewhere it
// shows nothing.
type progress struct {
	a     *app
	what  string
	began time.Time
	bar   *progressbar.ProgressBar
}

func (a *app) progress(what string) *progress {
	return &progress{a: a, what: what, began: a.env.now()}
}

func (p *progress) report(at ingest.Progress) {
	if p.bar == nil {
		if at.Total <= 0 || !terminal(p.a.stderr) || p.a.env.now().Sub(p.began) < time.Second {
			return
		}
		p.bar = progressbar.NewOptions64(at.Total,
			progressbar.OptionSetWriter(p.a.stderr),
			progressbar.OptionSetDescription(p.what),
			progressbar.OptionEnableColorCodes(false),
			progressbar.OptionSetPredictTime(false), // it would not know of the second before
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	}
	p.bar.ChangeMax64(at.Total)
	p.bar.Set64(at.Bytes)
}

// end removes the bar and says how long the work took.
func (p *progress) end() time.Duration {
	if p.bar != nil {
		p.bar.Finish()
	}
	return p.a.env.now().Sub(p.began)
}
