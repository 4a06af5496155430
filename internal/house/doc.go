// Package house holds the rules every other package keeps, as tests: which way
// imports may point, who may dial, read the clock, the environment or write to
// standard output, and what every package must have.
//
// It has no code of its own.
package house
