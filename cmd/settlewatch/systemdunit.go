package main

import (
	"context"
	_ "embed"
	"errors"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

What stands behind -- is added to the command that serves, and refused where serve would
refuse it; only the verifier of tokens may be left to the unit's environment. For example
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
		return needsAbsolute("dir", dir)
	}
	dir = filepath.Clean(dir)
	o, err := a.unitFlags(more)
	if err != nil {
		return err
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

// unitFlags reads what stands behind --, and refuses what serve would refuse at the
// start of the unit: that is found out here, and not in the journal. The environment
// is the unit's and not ours; of what may stand there only the verifier of tokens is
// taken to be, as the unit says itself. Files are for the service to read.
func (a *app) unitFlags(more []string) (*serveOptions, error) {
	env := a.env
	env.getenv = func(string) string { return "" }
	there := &app{stderr: a.stderr, env: env}
	serve, o := there.serve()
	f := serve.Flags()
	switch err := serve.ParseFlags(more); {
	case errors.Is(err, pflag.ErrHelp):
		return nil, usage("help is no server: settlewatch serve --help")
	case err != nil:
		return nil, flagError(err)
	}
	if rest := f.Args(); len(rest) > 0 {
		return nil, usage("only flags of serve stand behind --, not %s", plain.Quote(rest[0], plain.Detail))
	}
	if f.Changed("dir") || f.Changed("guard-dir") {
		return nil, usage("--dir stands before --, and the unit has a guard directory of its own")
	}
	if err := noBlankFlag(f); err != nil {
		return nil, err
	}
	// Public offers are served to anybody, where nobody says otherwise.
	verifies := !o.http.config.NoAuth && !onlyOffers(o.toolsets)
	var relative error
	f.Visit(func(f *pflag.Flag) {
		verifies = verifies || !o.http.config.NoAuth && strings.HasPrefix(f.Name, "auth-")
		if f.Value.Type() == "path" && !filepath.IsAbs(f.Value.String()) {
			relative = needsAbsolute(f.Name, f.Value.String())
		}
	})
	if relative != nil {
		return nil, relative
	}
	if o.http.config.Addr == "" {
		o.http.config.Addr = unitHTTP
	}
	if auth := &o.http.config.Auth; verifies {
		if auth.Issuer == "" {
			auth.Issuer = "https://issuer.example"
		}
		if o.http.jwks == "" && o.http.secret == "" {
			o.http.jwks = "/etc/settlewatch/jwks.json"
		}
	}
	defer o.market.close()
	_, _, err := there.holds(o)
	return o, err
}

// needsAbsolute refuses a path that depends on where somebody stands.
func needsAbsolute(flag, value string) error {
	return usage("--%s takes an absolute path here, not %s: a unit starts in no directory of yours", flag, plain.Quote(value, plain.Detail))
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
