// Package plain makes text from strangers safe to show. Names, urls,
// descriptions and error texts in events come from the other side of a payment;
// wherever they reach a terminal or an agent they pass this one cleaner (guard
// contract, section 8).
//
// It owns the decision of what a harmless character is, and how text and figures are
// laid out for people: how wide a text is and where its lines may break, numbers,
// sizes. It must never interpret what the text means, and it is never applied to a
// byte-exact receipt.
package plain
