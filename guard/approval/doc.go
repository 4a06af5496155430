// Package approval decides what an agent may do without asking a person, and what
// a person's approval of one tool call is worth: the spend gate of the CHP
// protocol, profile B, and its tool approvals (approvals contract, sections 2 to 4).
//
// It owns the order of the gate's rules, the words of its claims and reasons,
// the fields its hash covers, and the reading of its policies. Those words are a
// protocol's: other programs compare them byte for byte, so they hold what a
// stranger wrote as it was written, and whoever shows them to a person or an
// agent cleans them first.
//
// [Evaluate] and [ApproveHuman] compute with doubles, and they are the one place
// for money where that is right: the protocol hashes and prints every amount as
// a double, whatever its spelling, so a gate with exact numbers would give other
// records than everybody else's. No payment is decided by them alone. The guard
// asks a [Gate], which decides in exact decimals, makes the record beside it, and
// takes the stricter of the two where rounding sets them apart (section 9.6).
//
// It owns tool policies, tool calls and what their hosts bind, receipts of both
// versions and whose signature on them counts. [Inspect] looks at a call,
// [Issue] makes a receipt for it, [Authorize] says whether one is good. A receipt of
// version 2 is for one call under one policy, and is worth nothing without the line
// of the log that approved it. The words of these are this package's and clean.
//
// It also owns the ledger of the protocol's published server, which is read and
// written here for other programs' sake and decides nothing.
//
// It is pure: no clock, no disk, no memory of what was committed or used up. It
// must never let through what it cannot read: what cannot be read or hashed is an
// error or a denial, whatever a policy says.
package approval
