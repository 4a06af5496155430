// Package canon writes JSON in its one canonical form and takes hashes of it:
// what the log chains, what operators sign, what an approval is bound to.
//
// It owns the approvals contract, section 1: the order of keys, the escapes and
// the three rules for numbers. A hash means nothing without the name of the rule
// it was taken under, so whoever stores a hash stores the rule too.
//
// Two inputs that differ must never share a text by being repaired on the way.
// What a lenient reader would mend (a key given twice, half of a surrogate pair,
// bytes that are not UTF-8, a number no double can hold) is refused with an
// [Error] that says where it stands.
//
// It is pure, and it must never normalise Unicode, drop a member, or round an
// integer.
package canon
