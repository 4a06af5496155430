// Package assemble makes receipts: a template and the events of an operation in,
// and out comes what was observed, what is missing and what went wrong.
//
// It owns templates (their checks, their resolution, the four built in), the
// judgement of an operation, the receipt and its bytes, and the explanation of a
// receipt. All of it is the trace contract, sections 2 to 8: for the same run
// and the same template a receipt is the same bytes everywhere, so every rule
// here cites the section it comes from.
//
// It is as tolerant of events as the contract's table is (section 3): what the
// index calls a fault may still be assembled. It must never touch the disk or
// the clock, never decide whether to pay, and never change a byte of an event.
package assemble
