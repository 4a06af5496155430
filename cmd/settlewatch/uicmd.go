package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/ui"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

type uiOptions struct {
	guarded
	addr          string
	noOpen, noKey bool

	// For tests: told of each link, and of the pages once they are listened for.
	opened func(link string)
	made   func(pages *ui.UI, addr string)
}

func (a *app) ui() *cobra.Command {
	var o uiOptions
	c := a.command(&cobra.Command{
		Use:   "ui [flags]",
		Short: "open the web page on which you see where money went and decide what waits",
		Long: `Serve a web page to your own browser, on this machine only: where the money went, what is
still open, and the reviews that wait, which you approve or reject there. With operators
in the policy the passphrase of your key is asked here first, and what you decide on the
page is signed with it until this command ends.

The browser is logged in by a file that only you can read, with a link that works once.
Press return here for another one; end it with Ctrl-C. With a key unlocked the page shows
a code, to be typed here: then it may decide.

reviewUrl in the policy may name this page where --addr has a fixed port, such as
http://127.0.0.1:8737/review/{review_id}: whoever opens that is offered the review on the
page that is open.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runUI(ctx, &o) })
	f := c.Flags()
	o.rootOptions.flags(f)
	o.guardOptions.flags(f)
	o.operatorFlag(f)
	f.StringVar(&o.addr, "addr", "127.0.0.1:0", "loopback address and port to listen on; port 0 is any that is free")
	f.BoolVar(&o.noOpen, "no-open", false, "do not open a browser; say where the link is")
	f.BoolVar(&o.noKey, "no-key", false, "ask for no key: look, and reject, but sign nothing")
	return c
}

// loopback reads an address to listen on, which only this machine can reach.
func loopback(addr string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && strings.EqualFold(host, "localhost") {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	at, perr := netip.ParseAddrPort(addr)
	if perr != nil || !at.Addr().IsLoopback() || at.Addr().Zone() != "" {
		return at, usage("--addr takes a loopback address and a port, such as 127.0.0.1:8737, not %s: the page is for this machine", plain.Quote(addr, plain.Detail))
	}
	return at, nil
}

// hostLabel is a name under .localhost that nothing else on the machine knows. Cookies
// ignore ports: a server on another port that knew it could have the browser sent
// there, with the cookie.
func hostLabel() string {
	b := make([]byte, 20)
	_, _ = rand.Read(b) // it never fails: the program ends instead
	return "s" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

func (a *app) runUI(ctx context.Context, o *uiOptions) error {
	at, err := loopback(o.addr)
	if err != nil {
		return err
	}
	g, x, err := a.openGuard(ctx, o.rootOptions, o.guardOptions)
	if err != nil {
		return err
	}
	defer x.Close()
	opt := ui.Options{Guard: g, Index: x, Now: a.env.now, Version: version(), Words: uiWords(o.after), Log: a.log(slog.LevelWarn)}
	if !o.noKey {
		// One signature each, but the passphrase once.
		if opt.Signer, err = a.signer(ctx, g, &o.guarded, []string{"what you decide on the page, each by itself, until this command ends"}); err != nil {
			return err
		}
	}
	// Before anybody waits for a page. What keeps it from being read shows there.
	slow := time.AfterFunc(time.Second, func() { a.note("reading the run files; the page opens when the index has them") })
	_ = x.Sync(ctx)
	slow.Stop()
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return errcode.Wrap(errcode.Bare(err), errcode.Usage, "another port with --addr, or none for any that is free", "listen on %s", at)
	}
	defer func() { _ = l.Close() }()
	bound, ok := l.Addr().(*net.TCPAddr)
	if !ok || !bound.IP.IsLoopback() {
		return errcode.New(errcode.Internal, "report this", "listen on %s: it is bound to %s", at, l.Addr())
	}
	opt.Authority = fmt.Sprintf("%s.localhost:%d", hostLabel(), bound.Port)
	opt.Doors = []string{l.Addr().String(), fmt.Sprintf("localhost:%d", bound.Port)}
	var entered sync.Mutex
	opt.Entered = func(by string) {
		entered.Lock()
		defer entered.Unlock()
		if by == "again" {
			a.note("warning: a link was used a second time. if that was not you, somebody else on this machine has used it: end this with Ctrl-C")
			return
		}
		a.note("logged in: %s", plain.Clean(by, plain.Detail))
		if opt.Signer != nil {
			a.note("to let that page decide, type the code it shows here, and return:")
		}
	}
	pages, err := ui.New(opt)
	if err != nil {
		return err
	}
	err = a.serveUI(ctx, o, l, pages, g.Watch, x.Watch)
	last, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	_ = g.Close(last) // what was seen shows again at the next start
	return err
}

// lastPage is how long pages that are being answered may still take at the end.
const lastPage = 3 * time.Second

func (a *app) serveUI(ctx context.Context, o *uiOptions, l net.Listener, pages *ui.UI, watch ...func(context.Context) error) error {
	life, end := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end()
	for _, w := range watch {
		watching.Go(func() { _ = w(life) }) // without it every page reads what changed
	}
	server := &http.Server{Handler: pages.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 60 * time.Second,
		IdleTimeout: 60 * time.Second, MaxHeaderBytes: 32 << 10, ErrorLog: log.New(a.stderr, "", 0)}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	pages.Prepare(life)
	file := &linkFile{}
	defer file.remove()
	if err := a.offer(life, o, pages, file); err != nil {
		return err
	}
	a.note("serving on %s, for this machine only; Ctrl-C ends it", l.Addr())
	if o.made != nil {
		o.made(pages, l.Addr().String())
	}
	if in, ok := a.stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		go a.listen(life, o, pages, file)
	}
	select {
	case <-ctx.Done():
	case err := <-failed:
		return errcode.Wrap(errcode.Bare(err), errcode.Internal, "start it again", "serve pages")
	}
	late, cancel := context.WithTimeout(context.Background(), lastPage)
	defer cancel()
	_ = server.Shutdown(late)
	return nil
}

// listen reads what the person types: nothing for a new link, or the code of a page.
func (a *app) listen(ctx context.Context, o *uiOptions, pages *ui.UI, file *linkFile) {
	lines := bufio.NewScanner(a.stdin)
	for lines.Scan() && ctx.Err() == nil {
		switch text := strings.TrimSpace(lines.Text()); {
		case text == "":
			if err := a.offer(ctx, o, pages, file); err != nil {
				a.note("warning: %s", errcode.Of(err).Message)
			}
		case pages.Confirm(text):
			a.note("confirmed: that page may decide, and what it decides is signed")
		default:
			a.note("no page shows this code. it has six digits")
		}
	}
	if ctx.Err() == nil {
		a.note("nothing is read from here any more. open pages stay; for a new link or to confirm a code, start settlewatch ui again")
	}
}

// offer makes a link and opens it. The link is a secret, so no command line has it: a
// browser is given the name of a file that only its user can read.
func (a *app) offer(ctx context.Context, o *uiOptions, pages *ui.UI, file *linkFile) error {
	link := pages.Link()
	if o.opened != nil {
		o.opened(link)
	}
	if err := file.write(link); err != nil {
		return errcode.Wrap(errcode.Bare(err), errcode.Internal, "a writable temporary directory in TMPDIR", "write the file that logs the browser in")
	}
	if !o.noOpen {
		err := a.openBrowser(ctx, file.path)
		if err == nil {
			a.note("opening %s in your browser; it works once, within three minutes", shown(file.path))
			return nil
		}
		a.note("note: no browser could be started: %v", err)
	}
	a.note("open this file in your browser, within three minutes: %s", shown(file.path))
	if terminal(a.stderr) {
		a.note("or this link: %s", link)
	}
	return nil
}

// openBrowser opens a file with what the system opens web pages with.
func (a *app) openBrowser(ctx context.Context, file string) error {
	command := []string{"xdg-open", file}
	switch a.env.goos {
	case "darwin":
		command = []string{"open", file}
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", file}
	}
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	if err := c.Start(); err != nil {
		return err
	}
	go func() { _ = c.Wait() }()
	return nil
}
