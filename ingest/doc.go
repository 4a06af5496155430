// Package ingest turns run files into the index and the index back into
// receipts: it discovers runs, tails them line by line, keeps damage beside
// what is sound, watches for changes, and reads an operation's own lines again
// when its receipt is asked for.
//
// It owns the promise that an answer covers every complete line that was on
// disk before the question (Sync), for any number of processes on one root,
// and that the index may vanish at any moment without changing an answer.
// It must never write below events/, never judge a payment, and never hold a
// run file's content for longer than it takes to read it.
package ingest
