// Command bench measures what the project promises about its speed and size,
// and prints one table: each row is a number of ours beside a yardstick taken
// in the same run (a raw read of the same bytes, a bare listing of the same
// directory, encoding/json, a naive build), as a ratio with its target. Ratios
// travel between machines, seconds do not.
//
// It owns the generator of the data, the yardsticks and docs/performance.md's
// table. Every number is taken in a fresh process of this same binary, so that
// memory is honest and no measurement warms another; a measured thing and its
// yardstick take turns, and medians count.
//
// It must never decide whether the project's tests pass: a busy machine is not
// a bug. It changes nothing outside its own directory of data.
package main
