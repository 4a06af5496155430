package market

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Instance is an entry of the directory. All of it is data: an address in it can be
// asked only after a person has configured it (market contract, section 6, W18).
type Instance struct {
	Origin, Operator, OperatorName, Name, Tagline, Contact string
	Status                                                 string
	ProbedAt                                               string
	LagSeconds                                             *int64
	Tor, I2PB32, I2PName, Lokinet                          string
	Changed                                                []string
}

// Directory is the federation as an instance sees it.
type Directory struct {
	Instance  string
	Instances []*Instance
	Dropped   int // elements that were no instances
	Hidden    int // that are offline
}

// online are the states of an instance that can be expected to answer.
var online = []string{"good", "quiet", "syncing"}

// names of other networks have no spaces and are not long.
var overlayForm = newForm(`^[A-Za-z0-9][A-Za-z0-9.-]{0,254}$`)

// Instances reads the directory. Servers ignore the filter for reachable ones, so
// it is applied here.
func (c *Client) Instances(ctx context.Context, name string, offline bool) (*Directory, error) {
	in, err := c.instance(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	all, err := c.list(ctx, in, "/v1/instances", nil)
	if err != nil {
		return nil, err
	}
	d := &Directory{Instance: in.origin}
	for n := range all.elements.Elements() {
		switch i, ok := readInstance(n); {
		case !ok:
			d.Dropped++
		case !offline && !slices.Contains(online, i.Status):
			d.Hidden++
		default:
			d.Instances = append(d.Instances, i)
		}
	}
	return d, nil
}

func readInstance(n jsjson.Node) (*Instance, bool) {
	if n.Kind() != jsjson.Object {
		return nil, false
	}
	f := &fields{n: n}
	i := &Instance{
		Origin:       f.web("origin"),
		Operator:     f.text("operator_tag", 64),
		OperatorName: f.text("operator_display_name", 64),
		Name:         f.text("name", 64),
		Tagline:      f.text("tagline", plain.Detail),
		Contact:      f.web("contact_url"),
		Status:       f.form("status", wordForm),
		ProbedAt:     f.time("last_probed_at"),
		LagSeconds:   f.whole("chain_lag_sec"),
	}
	if i.Origin == "" {
		return nil, false
	}
	if i.Status == "" { // the word of an older document
		i.Status = f.form("last_probe_status", wordForm)
	}
	if i.Status == "" {
		i.Status = "unknown"
	}
	if alt, ok := f.there("alt_networks"); ok {
		in := &fields{n: alt}
		i.Tor, i.I2PB32 = in.form("tor", overlayForm), in.form("i2p_b32", overlayForm)
		i.I2PName, i.Lokinet = in.form("i2p_name", overlayForm), in.form("lokinet", overlayForm)
		if alt.Kind() != jsjson.Object || in.changed != nil {
			f.note("alt_networks")
		}
	}
	i.Changed = f.changed
	return i, true
}

// maxLink is the most bytes of an address of a stranger.
const maxLink = 256

// web is an address of a web page: http or https, with a host and without a
// password, and as it came.
func (f *fields) web(name string) string {
	n, ok := f.there(name)
	if !ok {
		return ""
	}
	text := textOf(n)
	u, err := url.Parse(text)
	if err != nil || len(text) > maxLink || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'<>\\`|", r) }) {
		f.note(name)
		return ""
	}
	return text
}
