package market

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/text/unicode/norm"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Options says which instances may be asked, and how.
type Options struct {
	Instances    []string // addresses; the first is asked where a question names none
	AllowPrivate bool     // instances on this host and its neighbours
	AllowHTTP    bool     // instances without TLS
	Proxy        string   // socks5h://HOST:PORT, "" for none
	MaxBody      int64    // bytes of an answer; 0 means 4 MiB
	Timeout      time.Duration
	Version      string // said to instances
	Now          func() time.Time
	// Dial opens connections; nil means the net package. What it connects to is
	// held to the same rules.
	Dial Dialer

	resolver resolver
	roots    *x509.CertPool
}

// Client answers the questions of the toolset. Its methods may be called from many
// goroutines.
type Client struct {
	o         Options
	instances []*instance
	fetch     *fetcher

	mu   sync.Mutex // guards refs
	refs *simplelru.LRU[string, *guard.Listing]
}

// What is remembered of offers that were shown, in memory only (market contract,
// section 7).
const (
	keptRefs = 1000
	refLife  = 30 * time.Minute
)

// New makes a Client and holds every address to the rules. It asks nobody.
func New(o Options) (*Client, error) {
	if o.Now == nil {
		return nil, errors.New("market: Options.Now is required")
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.resolver == nil {
		o.resolver = net.DefaultResolver
	}
	c := &Client{o: o}
	for _, text := range o.Instances {
		in, err := parseInstance(text, &c.o)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(c.instances, func(known *instance) bool { return known.origin == in.origin }) {
			c.instances = append(c.instances, in)
		}
	}
	if len(c.instances) == 0 {
		return nil, errcode.New(errcode.Usage, "name one with --market-instance https://HOST", "offer the toolset market: no instance is named, and none is built in")
	}
	for _, in := range c.instances {
		in.turns = make(chan struct{}, max(atOnce/len(c.instances), 1))
	}
	var err error
	if c.refs, err = simplelru.NewLRU[string, *guard.Listing](keptRefs, nil); err != nil {
		return nil, err
	}
	c.fetch, err = newFetcher(&c.o)
	return c, err
}

// Close ends what is under way and waits for it.
func (c *Client) Close() { c.fetch.close() }

// Origins are the instances that may be asked, the first where a question names
// none.
func (c *Client) Origins() (all []string) {
	for _, in := range c.instances {
		all = append(all, in.origin)
	}
	return all
}

// instance looks up the instance a question names. Only configured ones can be
// named: an agent never supplies an address.
func (c *Client) instance(name string) (*instance, error) {
	if name == "" {
		return c.instances[0], nil
	}
	for _, in := range c.instances {
		if in.origin == strings.TrimRight(name, "/") {
			return in, nil
		}
	}
	return nil, errcode.New(errcode.Input, "one of "+strings.Join(c.Origins(), ", "), "there is no configured instance %s; only a person can add one, when the server is started", plain.Quote(name, plain.Detail))
}

// within bounds a whole question, however many requests it takes.
func (c *Client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.o.Timeout)
}

// Search is a question for offers. Zero values are not sent.
type Search struct {
	Instance                           string
	Asset, Side, Fiat, Region, Methods string
	MinTrades                          int
	Sort                               string
	Limit                              int
	Cursor                             string
}

// Page is one page of offers.
type Page struct {
	Instance   string
	Rows       []*Row
	Dropped    int // elements that were no offers
	LeftOut    int // elements beyond the limit, which next_cursor may not lead to
	NextCursor string
	// CursorUnread: more follows, but what should lead there is no cursor.
	CursorUnread bool
	Deeplink     string
}

// maxToken is the most characters of a payment method in a filter; servers drop
// longer ones.
const maxToken = 32

// methodTokens reads a filter of payment methods as servers do: trimmed, in lower
// case, NFC, long ones dropped. None left would be no filter at all.
func methodTokens(list string) (string, error) {
	var all []string
	for token := range strings.SplitSeq(list, ",") {
		token = norm.NFC.String(strings.ToLower(strings.TrimSpace(token)))
		if token != "" && len([]rune(token)) <= maxToken {
			all = append(all, token)
		}
	}
	if list != "" && all == nil {
		return "", errcode.New(errcode.Input, "slugs of morphit_list_payment_methods, separated by commas", `"payment_methods" names no method`)
	}
	return strings.Join(all, ","), nil
}

// Search lists offers of the public book, no more than limit, whatever the instance
// sends.
func (c *Client) Search(ctx context.Context, s Search) (*Page, error) {
	in, err := c.instance(s.Instance)
	if err != nil {
		return nil, err
	}
	if s.Methods, err = methodTokens(s.Methods); err != nil {
		return nil, err
	}
	s.Region = norm.NFC.String(s.Region)
	query := url.Values{}
	for _, p := range []struct{ name, value string }{
		{"asset", s.Asset}, {"side", s.Side}, {"fiat_currency", s.Fiat}, {"location_region", s.Region},
		{"payment_methods", s.Methods}, {"sort", s.Sort}, {"cursor", s.Cursor},
	} {
		if p.value != "" {
			query.Set(p.name, p.value)
		}
	}
	if s.MinTrades > 0 {
		query.Set("min_trades", strconv.Itoa(s.MinTrades))
	}
	most := maxLimit
	if s.Limit > 0 {
		most = s.Limit
		query.Set("limit", strconv.Itoa(s.Limit))
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	list, err := c.list(ctx, in, "/v1/orderbook", query)
	if err != nil {
		return nil, err
	}
	p := &Page{Instance: in.origin, Deeplink: in.searchLink(s), NextCursor: list.next, CursorUnread: list.unread}
	for n := range list.elements.Elements() {
		if len(p.Rows) == most { // neither read nor remembered, however many they are
			p.LeftOut++
			continue
		}
		r, ok := readRow(n, publicBook)
		if !ok {
			p.Dropped++
			continue
		}
		if err := c.show(r, in, list.at); err != nil {
			return nil, err
		}
		p.Rows = append(p.Rows, r)
	}
	return p, nil
}

// maxLimit is the largest page servers give.
const maxLimit = 100

// listed is one page of a list, its elements not yet read.
type listed struct {
	elements jsjson.Node
	at       time.Time // it came
	next     string
	unread   bool // it goes on, at what is no cursor
}

func (c *Client) list(ctx context.Context, in *instance, path string, query url.Values) (*listed, error) {
	root, at, err := c.document(ctx, in, path, query)
	if err != nil {
		return nil, err
	}
	l := &listed{at: at}
	l.next, l.unread = cursorOf(root)
	l.elements, err = list(in, root)
	return l, err
}

// show makes an offer ready to be shown and remembers it for the guard, as old as
// the reply it came in. Only what is shown is: an instance that sends more than it
// was asked for must not push out what others have sent. Of readings that contradict
// each other the newest is the one that counts.
func (c *Client) show(r *Row, in *instance, at time.Time) error {
	r.place(c.o.Now())
	l, err := r.seen(in.origin, at)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.refs.Values() {
		if !contradicts(known, l) {
			continue
		}
		if known.SeenAt.After(at) {
			return nil
		}
		c.refs.Remove(refOf(known.Digest))
	}
	c.refs.Add(r.Ref, l)
	return nil
}

// Recall is the offer a listing_ref stands for: nil when it was never shown here, too
// many were shown since, it was shown too long ago, or its instance has contradicted
// it since. It asks nobody.
func (c *Client) Recall(ref string) *guard.Listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.refs.Peek(ref)
	if !ok {
		return nil
	}
	if age := c.o.Now().Sub(l.SeenAt); age < 0 || age > refLife {
		c.refs.Remove(ref)
		return nil
	}
	return l
}

// Found is one offer in full.
type Found struct {
	Instance string
	Row      *Row
	Deeplink string
}

// maxPages is how far the list of an account is read.
const maxPages = 10

// Listing finds one offer in the list of its account.
func (c *Client) Listing(ctx context.Context, name, account, permlink string) (*Found, error) {
	in, err := c.instance(name)
	if err != nil {
		return nil, err
	}
	if !accountForm.matches(account) || len(permlink) > maxPermlink || !permlinkForm.matches(permlink) {
		return nil, errcode.New(errcode.Input, "account and permlink as morphit_search_orders gives them", "account or permlink does not have the form it must have")
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	query := url.Values{"limit": {strconv.Itoa(maxLimit)}}
	walked := map[string]bool{}
	for range maxPages {
		list, err := c.list(ctx, in, "/v1/orders/"+account, query)
		if err != nil {
			return nil, err
		}
		for n := range list.elements.Elements() {
			if textOf(n.Get("account")) != account || textOf(n.Get("permlink")) != permlink {
				continue
			}
			r, ok := readRow(n, ownersView)
			if !ok {
				continue
			}
			if err := c.show(r, in, list.at); err != nil {
				return nil, err
			}
			return &Found{Instance: in.origin, Row: r, Deeplink: in.listingLink(account, permlink)}, nil
		}
		if list.unread {
			return nil, misread(in, "its list goes on at what is no cursor")
		}
		if list.next == "" || walked[list.next] {
			break
		}
		walked[list.next] = true
		query.Set("cursor", list.next)
	}
	return nil, errcode.New(errcode.ListingNotFound, "morphit_search_orders lists what can be found now", "find the listing %s of the account %s at %s: it is not among the newest of the account", permlink, account, in.origin)
}
