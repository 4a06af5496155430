package main

import (
	"context"
	_ "embed"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/internal/plain"
)

//go:embed systemd/settlewatch.service
var unitText string

const (
	unitDir   = "/srv/agent/.trace"    // the trace root, unless told otherwise
	unitGuard = "/var/lib/settlewatch" // the unit's StateDirectory
	unitHTTP  = "127.0.0.1:8124"
)

func (a *app) systemdUnit() *cobra.Command {
	var dir path = unitDir
	c := a.command(&cobra.Command{
		Use:   "systemd-unit [flags] [-- SERVE-FLAGS]",
		Short: "print a systemd unit that serves MCP over HTTP on loopback",
		Long: `Print a systemd unit that runs this program over HTTP on loopback, as a user of its
own, with everything read-only but its guard directory ` + unitGuard + `.
Its first lines say what it needs: the user, read access to the run files, and a verifier
of tokens. The unit starts this program where it lies now: put it where services may read
it, such as /usr/local/bin, first. In a home or in /tmp the service does not see it.

What stands behind -- is added to the command that serves, for example
settlewatch systemd-unit --dir /srv/agent/.trace -- --guard-config /etc/settlewatch/policy.json`,
		Args: operands(0, maxUnitFlags),
	}, func(_ context.Context, args []string) error { return a.runSystemdUnit(string(dir), args) })
	c.Flags().Var(&dir, "dir", "trace root, an absolute path")
	return c
}

// maxUnitFlags bounds what is added to the unit's command.
const maxUnitFlags = 64

func (a *app) runSystemdUnit(dir string, more []string) error {
	if !filepath.IsAbs(dir) {
		return usage("--dir takes an absolute path here, not %s: a unit starts in no directory of yours", plain.Quote(dir, plain.Detail))
	}
	dir = filepath.Clean(dir)
	serve, o := a.serve()
	if err := serve.ParseFlags(more); err != nil {
		return flagError(err)
	}
	if rest := serve.Flags().Args(); len(rest) > 0 {
		return usage("only flags of serve stand behind --, not %s", plain.Quote(rest[0], plain.Detail))
	}
	if o.dir != defaultDir || o.guardDir != "" {
		return usage("--dir stands before --, and the unit has a guard directory of its own")
	}
	program, err := a.env.executable()
	if err != nil {
		return err
	}
	command := append([]string{program, "serve", "--http", unitHTTP, "--dir", dir, "--guard-dir", unitGuard}, more...)
	for i, word := range command {
		if strings.ContainsFunc(word, unicode.IsControl) {
			return usage("a unit cannot hold %s", plain.Quote(word, plain.Detail))
		}
		command[i] = unitWord(word, "$", "$$")
	}
	a.out.WriteString(strings.NewReplacer(
		"{{command}}", strings.Join(command, " "),
		"{{review}}", "settlewatch review list --dir "+shellWord(dir)+" --guard-dir "+unitGuard,
		"{{home}}", unitHome(dir),
		"{{network}}", unitNetwork(o),
	).Replace(unitText))
	return nil
}

// unitHome hides the homes of people from the service, and lets it see the trace
// root where it lies in one.
func unitHome(dir string) string {
	for _, home := range []string{"/home", "/root", "/run/user"} {
		if dir == home || strings.HasPrefix(dir, home+"/") {
			return "ProtectHome=tmpfs\nBindReadOnlyPaths=" + unitWord(dir, ":", `\:`)
		}
	}
	return "ProtectHome=yes"
}

// unitNetwork keeps the service on loopback, unless it is to dial: which addresses
// instances and resolvers have is known to nobody beforehand. A proxy on loopback
// dials in its place.
func unitNetwork(o *serveOptions) string {
	if slices.Contains(o.toolsets, marketToolset) && !onLoopback(o.market.proxy) {
		return "# Network: the market toolset dials, so no address is closed here. The server itself\n" +
			"# goes to the public addresses of its instances only."
	}
	return "# Network: loopback only. A server that is reached from other machines needs these two\n" +
		"# lines changed.\nIPAddressDeny=any\nIPAddressAllow=localhost"
}

// onLoopback reports whether a URL names this machine.
func onLoopback(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && a.IsLoopback()
}

// unitWord spells one word of a unit file (systemd.syntax, systemd.service
// "Command lines"); special is what the setting itself reads, and its escape.
func unitWord(word, special, escaped string) string {
	harmless := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_./,=@+:", r) && string(r) != special
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !harmless(r) }) < 0 {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", special, escaped).Replace(word) + `"`
}
