// Package guard says whether an agent may pay a counterparty again: allow, review
// or block, with the reasons.
//
// It also says whether a tool call may run: on a receipt that a person's decision, or
// a gate that needs none, stands behind, and once (approvals contract, section 9).
//
// It owns the policy file, the reading of a request, the facts a verdict rests on
// (asked of the index), the rules themselves ([Judge] is pure: policy, facts, state,
// request and time in, verdict out), and the acts of people on reviews, holds,
// freezes, resolutions, the baseline and damage. The rules are those of the guard
// contract.
//
// It is advice: it must never move money, dial, read a run file, or let anything in
// a request or an event loosen what the policy says.
package guard
