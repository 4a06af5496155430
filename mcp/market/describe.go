package market

import (
	"context"
	"errors"
	"slices"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Assets are what offers can be about (market contract, section 2.1).
var Assets = []string{"BTC", "XMR", "BLURT", "USDT", "USDC", "DAI", "BCH", "LTC", "DASH", "DOGE", "ZEC", "ARRR", "DCR", "SOL", "ETH", "XRP", Barter}

// Description is what an instance says of itself.
type Description struct {
	Origin         string
	Reachable      bool
	Why            string // it could not be asked
	Name           string
	Tagline        string
	Contact        string
	Region         string
	DisabledAssets []string
	WebUI          string // a page of the instance
	Documentation  string // a page of the instance
}

// about is what is read of the resource that describes an instance.
type about struct {
	name, tagline, contact, region string
	disabledAssets                 []string
	disabledMethods                map[string]bool // as many as the instance likes
}

// Describe says what an instance is. One that does not answer is said not to.
func (c *Client) Describe(ctx context.Context, name string) (*Description, error) {
	in, err := c.instance(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	d := &Description{Origin: in.origin, WebUI: in.origin + "/", Documentation: in.deeplink("/faq")}
	a, err := c.about(ctx, in)
	if err != nil {
		var known *errcode.Error
		if !errors.As(err, &known) {
			return nil, err
		}
		d.Why = known.Message
		return d, nil
	}
	d.Reachable, d.Name, d.Tagline, d.Contact, d.Region, d.DisabledAssets = true, a.name, a.tagline, a.contact, a.region, a.disabledAssets
	return d, nil
}

func (c *Client) about(ctx context.Context, in *instance) (*about, error) {
	root, _, err := c.document(ctx, in, "/v1/instance", nil)
	if err != nil {
		return nil, err
	}
	f := &fields{n: root}
	a := &about{
		name:    f.text("name", 64),
		tagline: f.text("tagline", plain.Detail),
		contact: f.web("contact_url"),
		region:  f.text("declared_region", maxRegion),

		disabledMethods: map[string]bool{},
	}
	if a.name == "" { // the word of an older document
		a.name = f.text("display_name", 64)
	}
	for _, asset := range Assets {
		if holds(root.Get("disabled_assets"), asset) {
			a.disabledAssets = append(a.disabledAssets, asset)
		}
	}
	for n := range root.Get("disabled_payment_methods").Elements() {
		if slug := textOf(n); slugForm.matches(slug) {
			a.disabledMethods[slug] = true
		}
	}
	return a, nil
}

// Available are the assets that the instance has not disabled.
func (d *Description) Available() (all []string) {
	for _, asset := range Assets {
		if !slices.Contains(d.DisabledAssets, asset) {
			all = append(all, asset)
		}
	}
	return all
}

func holds(list jsjson.Node, text string) bool {
	for n := range list.Elements() {
		if textOf(n) == text {
			return true
		}
	}
	return false
}
