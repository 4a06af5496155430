// Package payment reads what a trace says about money: who is paid, in which
// asset, how much, and whether it was settled.
//
// It owns the identity of names (addresses, hosts, networks, assets, resources),
// exact atomic amounts, the projection of one event to a [Fact], the order-free
// fold of an operation's facts ([State]) into a [Summary] with one [Payment] for
// each possible payment, and the links between payments and answers that the
// recorder split off ([Link]). The rules are those of the guard contract,
// sections 1 ("Spent", "Settlement states") and 3, and of the trace contract,
// sections 9, 10, 12.8 and 12.9.
//
// It is pure: no disk, no clock, no network, no state between calls but the
// caches a caller passes in. It never guesses an amount, a decimal place or an
// asset, never uses a float for money, and where a fact is in doubt says so
// instead of choosing the convenient reading.
package payment
