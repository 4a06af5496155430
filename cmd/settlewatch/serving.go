package main

import (
	"context"

	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/mcp"
	"github.com/settlewatch/settlewatch/mcp/transport"
)

// serving is a server between its flags and its first answer.
type serving struct {
	options *serveOptions
	root    *lateRoot
	traces  mcp.Traces // beforeStart may put something around it
	guard   mcp.Guard  // beforeStart may put something around it
	asks    mcp.Approvals
	grants  mcp.Operator      // nil but for the toolset operator
	host    approval.Host     // what the host has fixed of every call
	http    *transport.Server // bound, and answering nobody yet; nil over stdio

	// answered is told of each answer over HTTP; nil tells nobody. It is set
	// before the first one.
	answered func(transport.Answer)

	metered *metered // nil when nobody asked for metrics
	temp    string   // directory for temporary files that was made for the process, or ""
}

// beforeStart runs when the flags have been checked and before anything is
// bound: what it refuses is refused while nothing listens.
func (a *app) beforeStart(s *serving) (err error) {
	if s.metered, err = a.meter(s); err != nil {
		return err
	}
	s.temp = a.ownTemp(s.options)
	return nil
}

// afterStart runs when everything is open and bound, and before anybody is
// answered: what runs beside a server starts here, and what the process no
// longer needs is given up here. end is called when serving is over.
func (a *app) afterStart(ctx context.Context, s *serving) (end func(), err error) {
	hide, err := s.metered.listen(ctx, a)
	if err != nil {
		removeTemp(s.temp)
		return nil, err
	}
	confining, stop := context.WithCancel(ctx)
	a.confine(confining, s)
	return func() {
		stop()
		hide()
		removeTemp(s.temp)
	}, nil
}
