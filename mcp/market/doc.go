// Package market reads the public offers of the instances an operator has named:
// an opt-in, read-only client of their order-listing API (market contract).
//
// It owns the only dials of this product and every rule about them: which
// addresses an instance may have, what is asked of it, how long, how much and how
// often; the reading of what strangers answer into closed types of clean text; the
// links that lead a person to the web page where offers are taken; and the memory
// of offers that were shown, so that the guard can judge a payment by the offer it
// is for.
//
// It must never send anything but GET requests for the five public resources,
// never follow a redirect, never go to an address that a reply or an agent has
// named, never quote an instance's error text, never let a member through that is
// not on its list, never make a link from anything but configuration and names it
// has checked, and never judge, take or change an offer.
package market
