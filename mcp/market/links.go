package market

import (
	"net/url"
	"strings"
)

// deeplink leads a person to a place of an instance's web page: the page's root
// picks a language and goes on to the path behind then (market contract, section
// 2.6).
func (in *instance) deeplink(inner string) string {
	return in.origin + "/?then=" + url.QueryEscape(inner)
}

// searchLink names the filters that are set, in the page's order.
func (in *instance) searchLink(s Search) string {
	var set []string
	for _, p := range []struct{ name, value string }{
		{"asset", s.Asset}, {"side", s.Side}, {"fiat", s.Fiat}, {"region", s.Region}, {"pm", s.Methods},
	} {
		if p.value != "" {
			set = append(set, p.name+"="+url.QueryEscape(p.value))
		}
	}
	inner := "/orderbook"
	if set != nil {
		inner += "?" + strings.Join(set, "&")
	}
	return in.deeplink(inner)
}

func (in *instance) listingLink(account, permlink string) string {
	return in.deeplink("/@" + account + "/" + permlink)
}
