// Package buyer is the inside of a process that a crash test starts: a buyer that is
// told on stdin what to buy, asks the guard as an agent does, and pays by appending to
// a run file of its own as a recorder does. Where it is told to, it stops and says so,
// so that it can be killed exactly there.
//
// It owns what such a process does with an order (package crash has the words of the
// two), the events it records, and its clock, which can be set.
//
// The guard it asks, and the index under that, are made where a server's are: it must
// never judge, and never do anything with them but put its stops between the two.
package buyer
