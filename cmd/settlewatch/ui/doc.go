// Package ui is the web page of the person who answers for an agent's money: where
// it went, what is still open, and what waits for a decision.
//
// It owns the pages, the one-time login, the sessions, and who may ask what from
// where. It gives an http.Handler and no more: the listener, the clock, the terminal
// and the key are the composition root's. What it shows comes from the index and the
// guard through questions of bounded cost, and what a person decides goes through the
// calls that the commands make.
//
// It must never dial or load anything from elsewhere, never hold a passphrase, never
// sign what was not shown, never be imported by what serves an agent, and never put a
// secret into a place that another program of this machine can read: not into the
// name of a page, and not into a cookie that a server on another port would be sent.
package ui
