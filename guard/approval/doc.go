// Package approval decides whether an agent may spend without asking a person:
// the spend gate of the CHP protocol, profile B (approvals contract, section 2).
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
// It is pure: no clock, no disk, no memory of what was committed. It fails
// closed: what cannot be read or hashed is an error, and the result beside the
// error is a blocked one.
package approval
