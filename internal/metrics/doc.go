// Package metrics shows how a server fares as Prometheus text, on a loopback
// listener of its own.
//
// It owns the names of the metrics, what may stand in a label, and the listener:
// where it may be bound, whom it answers, and its deadlines. What is counted is told
// to a [Set] as it happens; what is measured is asked for at each scrape.
//
// It must never show a counterparty, an id, a path or anything else out of a trace,
// a request or a token, never be bound to anything but loopback, and never use the
// library's global registry, which any package of the process may write to.
package metrics
