// Package chp answers the conformance runner of the CHP protocol: a JSON request a
// line, a JSON answer a line.
//
// It owns those lines: which operations there are, what arguments each has to have and
// may have, how long a line may be, and what an answer looks like. What it answers with
// is the business of canon and approval, so that the runner tries the very code that
// the guard goes by.
//
// It must never read anything but the lines, remember anything from one line to the
// next, or end because of what a line holds: every line has its answer, in its place.
package chp
