//go:build !race

package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/inbox"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// When a defect ends the screen, the library closes what it waits for keys with under
// itself. The race detector sees that, and it is not ours to mend: a process that ends
// needs no more keys.

func TestADefectGivesTheTerminalBack(t *testing.T) {
	// The first look and the first screen are sound, so that there is a screen to leave.
	for name, d := range map[string]*brokenDesk{"while it looks": {looks: 2}, "while it draws": {clock: 3}} {
		t.Run(name, func(t *testing.T) {
			s := takeSeat(t, 80, 24)
			err := inbox.Run(t.Context(), inbox.Options{Desk: d, Now: d.now, Every: 50 * time.Millisecond, In: s.inner, Out: s.inner, Environ: []string{"TERM=xterm"}})
			if errcode.Of(err).Code != errcode.Internal {
				t.Errorf("it ends with %v", err)
			}
			s.restored()
		})
	}
}

// brokenDesk has a defect in one of its looks, or its clock has one.
type brokenDesk struct {
	inbox.Desk
	mu           sync.Mutex
	looks, clock int
}

func (d *brokenDesk) Look(context.Context, inbox.Want) (*inbox.Scene, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.looks--; d.looks == 0 {
		panic("a defect of this test")
	}
	return &inbox.Scene{Cards: []inbox.Card{{ID: "r-1"}}}, nil
}

func (d *brokenDesk) now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clock--; d.clock == 0 {
		panic("a defect of this test")
	}
	return noon
}
