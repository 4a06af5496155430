package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/settlewatch/settlewatch/mcp"
	"github.com/settlewatch/settlewatch/mcp/transport"
)

// warnings is what a server tells whoever runs it.
const warnings = slog.LevelWarn

// serveHTTP serves over HTTP until ctx is done. Whatever can be refused is
// refused before anything listens.
func (a *app) serveHTTP(ctx context.Context, s *serving) error {
	c := s.options.http.config
	c.Answered = func(what transport.Answer) {
		if s.answered != nil {
			s.answered(what)
		}
	}
	h, err := mcp.NewHTTPHandler(ctx, s.traces, a.offered(s))
	if err == nil {
		s.http, err = transport.Listen(ctx, c)
	}
	if err != nil {
		_ = os.RemoveAll(s.temp)
		return err
	}
	// Nobody hears what is said on stderr once its reader has ended. That is no
	// reason to end with it: agents ask here before they pay.
	signal.Ignore(syscall.SIGPIPE)
	s.root.begin()
	end, err := a.afterStart(ctx, s)
	if err != nil {
		_ = s.http.Close()
		return err
	}
	defer end()
	switch {
	case c.NoAuth:
		a.note("warning: no token is asked for: every program on this machine that can reach %s can read payments and ask for verdicts", s.http.Addr())
	case c.Auth.Issuer != "":
		a.note("tokens of %s must name the audience %s", c.Auth.Issuer, s.http.Resource())
	}
	a.note("serving MCP over HTTP on %s", s.http.Addr())
	return s.http.Serve(ctx, h)
}

// offered is what a server offers over any transport.
func (a *app) offered(s *serving) mcp.Options {
	o := s.options
	return mcp.Options{
		Version: version(), Toolsets: o.toolsets, Guard: s.guard, Market: o.market.tools(), Approvals: s.asks, Operator: s.grants,
		Demo: o.demo, LedgerArgs: o.args, TrustMeta: o.trustMeta, Host: s.host, Log: a.log(warnings),
	}
}

// readsLater are the directories HTTP needs to read after the start: a key file
// is read again when it has changed, and replaced under its name.
func (o *httpOptions) readsLater() []string {
	if o.config.Auth.JWKS == "" {
		return nil
	}
	dir, err := filepath.Abs(filepath.Dir(o.config.Auth.JWKS))
	if err != nil {
		return nil
	}
	return []string{dir}
}
