package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// noter is a log handler that tells a person what the index warns of, each
// thing once: that it was set aside, or that a private one serves. Its answers
// are as right as ever; that they took longer should not be a riddle.
type noter struct {
	tell  func(text string)
	mu    sync.Mutex
	heard map[string]bool
}

func (n *noter) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (n *noter) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(at slog.Attr) bool {
		b.WriteString(": ")
		if at.Key == "index" {
			b.WriteString(plain.Quote(at.Value.String(), plain.Detail))
		} else {
			b.WriteString(at.Value.String())
		}
		return true
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.heard == nil {
		n.heard = map[string]bool{}
	}
	if text := b.String(); !n.heard[text] {
		n.heard[text] = true
		n.tell(text)
	}
	return nil
}

// The index adds neither attributes nor groups to its logger.
func (n *noter) WithAttrs([]slog.Attr) slog.Handler { return n }
func (n *noter) WithGroup(string) slog.Handler      { return n }
