package transport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// What an address looks like decides nothing, what it is does.
func TestMarketContract59WhichAddressesMayBeBound(t *testing.T) {
	const none, remote, public = 0, 1, 2
	for addr, least := range map[string]int{
		"127.0.0.1:8124": none, "127.255.255.254:1": none, "localhost:8124": none, "LOCALHOST:0": none, "[::1]:8124": none,
		"[::ffff:127.0.0.1]:1": none, "[0:0:0:0:0:0:0:1]:1": none,

		"10.0.0.1:1": remote, "172.16.0.1:1": remote, "172.31.255.255:1": remote, "192.168.1.1:1": remote, "100.64.0.1:1": remote,
		"100.127.255.255:1": remote, "169.254.1.1:1": remote, "[fe80::1]:1": remote, "[febf::1%eth0]:1": remote, "[fd00::1]:1": remote,
		"[fc00::1]:1": remote, "[::ffff:10.0.0.1]:1": remote,

		"0.0.0.0:1": public, "[::]:1": public, "[::0]:1": public, "[0::0]:1": public, "[::ffff:0.0.0.0]:1": public, "[::%eth0]:1": public,
		"8.8.8.8:1": public, "[2001:db8::1]:1": public, "172.15.255.255:1": public, "172.32.0.1:1": public, "100.63.255.255:1": public,
		"100.128.0.1:1": public, "192.167.1.1:1": public, "11.0.0.1:1": public, "169.253.1.1:1": public, "126.255.255.255:1": public, "128.0.0.1:1": public,
		"0.0.0.1:1": public, "[::127.0.0.1]:1": public, "[64:ff9b::7f00:1]:1": public, "[2002:7f00:1::]:1": public, "[fec0::1]:1": public,
		"[::2]:1": public, "240.0.0.1:1": public, "192.0.2.1:1": public,
	} {
		for flags := none; flags <= public; flags++ {
			p := &plan{Config: Config{AllowRemote: flags >= remote, AllowPublic: flags >= public}}
			b, err := parseBind(addr)
			if err != nil {
				t.Errorf("%s: %v", addr, err)
				break
			}
			if may := p.mayBind(b.addr.Addr()) == nil; may != (flags >= least) {
				t.Errorf("%s with %d of the two flags: %v", addr, flags, may)
			}
		}
		// --http-allow-public does not stand for both, except where what is
		// served is public.
		b, _ := parseBind(addr)
		if may := (&plan{Config: Config{AllowPublic: true}}).mayBind(b.addr.Addr()) == nil; may != (least == none) {
			t.Errorf("%s with --http-allow-public alone: %v", addr, may)
		}
		if may := (&plan{Config: Config{Open: true}}).mayBind(b.addr.Addr()) == nil; may != (least <= remote) {
			t.Errorf("%s with what is public: %v", addr, may)
		}
		if err := (&plan{Config: Config{Open: true, AllowPublic: true}}).mayBind(b.addr.Addr()); err != nil {
			t.Errorf("%s with what is public and --http-allow-public: %v", addr, err)
		}
	}
	everything := &plan{Config: Config{AllowRemote: true, AllowPublic: true, Open: true}}
	for _, addr := range []string{"224.0.0.1:1", "239.255.255.255:1", "[ff02::1]:1", "255.255.255.255:1"} {
		b, err := parseBind(addr)
		if err == nil {
			err = everything.mayBind(b.addr.Addr())
		}
		if err == nil {
			t.Errorf("%s may be bound", addr)
		}
	}
	for _, addr := range []string{"", ":8124", "*:8124", "0:1", "0x0:1", "0x7f000001:1", "2130706433:1", "127.1:1", "0177.0.0.1:1", "127.0.0.01:1", "0.0.0.00:1", "0.0.0.0.:1",
		"::0:1", "::1", "[::1", "[::1]", "[::1]8124", "[127.0.0.1:1", "localhost", "localhost.:1", "localhost.localdomain:1", "example.com:1", "127.0.0.1.example.com:1",
		" 127.0.0.1:1", "127.0.0.1 :1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:+1", "127.0.0.1:65536", "127.0.0.1:1x", "127.0.0.1:01", "127.0.0.1:http", "127.0.0.1:0x1",
		"127.0.0.1:1:1", "http://127.0.0.1:1", "[::1%]:1", "unix:/tmp/x", "１27.0.0.1:1", "127。0。0。1:1"} {
		if b, err := parseBind(addr); err == nil {
			t.Errorf("%q was read as %v", addr, b)
		} else if e := errcode.Of(err); e.Code != errcode.Usage || e.Hint == "" {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestTheSocketIsHeldToThePolicyToo(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	c := open()
	c.Addr = taken.Addr().String()
	if _, err := Listen(context.Background(), c); errcode.Of(err).Code != errcode.Usage {
		t.Errorf("a port that is taken: %v", err)
	}
	// What the system bound is asked for again: a plan whose address was
	// exchanged after it was checked does not listen.
	p, err := open().check()
	if err != nil {
		t.Fatal(err)
	}
	p.bind.addr = netip.MustParseAddrPort("0.0.0.0:0")
	if l, at, err := p.listen(context.Background()); err == nil {
		_ = l.Close()
		t.Errorf("%s was bound", at)
	}
}

func TestConfigurationsThatCannotBeRightAreRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := write("secret", strings.Repeat("s", 32), 0o600)
	withSecret := func(c *Config) { c.NoAuth, c.Auth = false, Auth{Issuer: "https://issuer.example", Secret: secret} }
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"records without tokens":         {func(c *Config) { c.NoAuth = false }, "without verifying tokens"},
		"nobody verified, off loopback":  {func(c *Config) { c.Addr, c.AllowRemote = "192.168.0.1:1", true }, "no loopback address"},
		"nobody verified, and verified":  {func(c *Config) { c.Auth.Issuer = "https://i.example" }, "--http-insecure-no-auth"},
		"a key without an issuer":        {func(c *Config) { withSecret(c); c.Auth.Issuer = "" }, "who issues"},
		"an issuer without a key":        {func(c *Config) { withSecret(c); c.Auth.Secret = "" }, "without a key"},
		"a scope without a verifier":     {func(c *Config) { c.NoAuth = false; c.Auth.Scopes = []string{"a"} }, "who issues"},
		"two keys":                       {func(c *Config) { withSecret(c); c.Auth.JWKS = "x" }, "at the same time"},
		"an issuer that is no URL":       {func(c *Config) { withSecret(c); c.Auth.Issuer = "issuer" }, "--auth-issuer"},
		"an issuer over plain HTTP":      {func(c *Config) { withSecret(c); c.Auth.Issuer = "http://issuer.example" }, "--auth-issuer"},
		"an issuer with a fragment":      {func(c *Config) { withSecret(c); c.Auth.Issuer = "https://issuer.example/#" }, "--auth-issuer"},
		"a public URL with a password":   {func(c *Config) { c.PublicURL = "https://u:hunter2@pay.example/mcp" }, "--public-url"},
		"a public URL with a query":      {func(c *Config) { c.PublicURL = "https://pay.example/mcp?x" }, "--public-url"},
		"a public URL with an empty one": {func(c *Config) { c.PublicURL = "https://pay.example/mcp?" }, "--public-url"},
		"a public URL without TLS":       {func(c *Config) { c.PublicURL = "http://pay.example/mcp" }, "--public-url"},
		"a public URL that is a path":    {func(c *Config) { c.PublicURL = "/mcp" }, "--public-url"},
		"a wildcard without its URL":     {func(c *Config) { withSecret(c); c.Addr, c.AllowRemote, c.AllowPublic = "0.0.0.0:0", true, true }, "its own URL|the server's own URL"},
		"every host":                     {func(c *Config) { c.Hosts = []string{"*"} }, "--http-allowed-host"},
		"hosts of a domain":              {func(c *Config) { c.Hosts = []string{"*.example"} }, "--http-allowed-host"},
		"a host that is a URL":           {func(c *Config) { c.Hosts = []string{"http://a.example"} }, "--http-allowed-host"},
		"a blank host":                   {func(c *Config) { c.Hosts = []string{""} }, "--http-allowed-host"},
		"every origin":                   {func(c *Config) { c.Origins = []string{"*"} }, "--http-allowed-origin"},
		"the origin null":                {func(c *Config) { c.Origins = []string{"null"} }, "--http-allowed-origin"},
		"an origin with a path":          {func(c *Config) { c.Origins = []string{"https://a.example/"} }, "--http-allowed-origin"},
		"an origin without a scheme":     {func(c *Config) { c.Origins = []string{"a.example"} }, "--http-allowed-origin"},
		"every proxy":                    {func(c *Config) { c.TrustedProxies = []string{"0.0.0.0/0"} }, "--http-trusted-proxy"},
		"every proxy over IPv6":          {func(c *Config) { c.TrustedProxies = []string{"::/0"} }, "--http-trusted-proxy"},
		"a proxy with a name":            {func(c *Config) { c.TrustedProxies = []string{"proxy.example"} }, "--http-trusted-proxy"},
		"a mapped network":               {func(c *Config) { c.TrustedProxies = []string{"::ffff:10.0.0.0/104"} }, "--http-trusted-proxy"},
		"no requests":                    {func(c *Config) { c.Rate = 0 }, "--http-rate"},
		"fewer than no requests":         {func(c *Config) { c.Rate = -1 }, "--http-rate"},
		"no body":                        {func(c *Config) { c.MaxBody = 0 }, "--http-max-body"},
		"a body without end":             {func(c *Config) { c.MaxBody = 1 << 40 }, "--http-max-body"},
		"no connections":                 {func(c *Config) { c.MaxConns = 0 }, "--http-max-conns"},
		"no connections of a client":     {func(c *Config) { c.MaxConnsPerClient = 0 }, "--http-max-conns-per-client"},
		"no time":                        {func(c *Config) { c.Timeouts.Body = 0 }, "--http-timeout"},
		"more time than that":            {func(c *Config) { c.Timeouts.Idle = time.Hour }, "--http-timeout"},
		"a scope with a blank":           {func(c *Config) { withSecret(c); c.Auth.Scopes = []string{"a b"} }, "--auth-scope"},
		"a scope with a quote":           {func(c *Config) { withSecret(c); c.Auth.Scopes = []string{`a"`} }, "--auth-scope"},
		"a secret others can read":       {func(c *Config) { withSecret(c); c.Auth.Secret = write("open", strings.Repeat("s", 32), 0o640) }, "0600"},
		"a secret that can be run":       {func(c *Config) { withSecret(c); c.Auth.Secret = write("run", strings.Repeat("s", 32), 0o700) }, "0600"},
		"a short secret":                 {func(c *Config) { withSecret(c); c.Auth.Secret = write("short", strings.Repeat("s", 31)+"\n", 0o600) }, "32 bytes"},
		"a secret that is not there":     {func(c *Config) { withSecret(c); c.Auth.Secret = filepath.Join(dir, "none") }, "--auth-hmac-secret"},
		"a secret that is a directory":   {func(c *Config) { withSecret(c); c.Auth.Secret = dir }, "--auth-hmac-secret"},
		"keys that are not there":        {func(c *Config) { withSecret(c); c.Auth.Secret, c.Auth.JWKS = "", filepath.Join(dir, "none") }, "--auth-jwks"},
		"keys that are none":             {func(c *Config) { withSecret(c); c.Auth.Secret, c.Auth.JWKS = "", write("keys", "{}", 0o644) }, "no key"},
	} {
		c := open()
		test.change(&c)
		s, err := Listen(context.Background(), c)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: it listens", name)
			continue
		}
		var e *errcode.Error
		if !errors.As(err, &e) || e.Code != errcode.Usage || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
		found := false
		for want := range strings.SplitSeq(test.want, "|") {
			found = found || strings.Contains(err.Error(), want)
		}
		if !found || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASecretIsALineOrBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for text, want := range map[string]string{
		strings.Repeat("s", 32):                strings.Repeat("s", 32),
		strings.Repeat("s", 32) + "\n":         strings.Repeat("s", 32),
		strings.Repeat("s", 32) + "\r\n":       strings.Repeat("s", 32),
		strings.Repeat("s", 32) + "\n\n":       strings.Repeat("s", 32) + "\n\n",
		strings.Repeat("\x80", 31) + "\n":      strings.Repeat("\x80", 31) + "\n",
		strings.Repeat("\x00", 40) + "abc\r\n": strings.Repeat("\x00", 40) + "abc\r\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readSecret(path); err != nil || string(got) != want {
			t.Errorf("%q was read as %q, %v", text, got, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
	if _, err := readSecret(path); err == nil {
		t.Error("a link was followed")
	}
}

func TestDeadlinesAreReadAsTheyArePrinted(t *testing.T) {
	d := Defaults().Timeouts
	if got := d.String(); got != "header=5s,body=10s,write=30s,idle=1m" {
		t.Errorf("the defaults are printed as %s", got)
	}
	if err := d.Set("body=1500ms, idle=90s"); err != nil || d != (Timeouts{5 * time.Second, 1500 * time.Millisecond, 30 * time.Second, 90 * time.Second}) {
		t.Errorf("%v %v", d, err)
	}
	again := Timeouts{}
	if err := again.Set(d.String()); err != nil || again != d {
		t.Errorf("%s was read as %v, %v", d.String(), again, err)
	}
	for _, text := range []string{"", "body", "body=", "body=0s", "body=-1s", "body=11m", "body=1", "body=1s,body=2s", "total=1s", "body=1s,", "body=1s;idle=1s"} {
		if d := again; d.Set(text) == nil || d != again {
			t.Errorf("%q was taken for %v", text, d)
		}
	}
}
