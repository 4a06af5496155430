package payment

import "slices"

// Flags of a payment as the index keeps them: what a question about many payments
// needs to know of each, and of its operation, without reading an event again. The
// numbers are stored. Those that most payments have none of come last, so that
// most rows need one byte.
const (
	// FlagUnanswered: nothing in its own operation answers it.
	FlagUnanswered = 1 << iota
	// FlagPaired: a settlement was reported for it.
	FlagPaired
	// FlagAmbiguous: a fact of its operation is ambiguous (guard contract, section
	// 1, "Spent"); it counts with every name in any copy.
	FlagAmbiguous
	// FlagVersion1: it was made in version 1 of the protocol.
	FlagVersion1
	// FlagOpen: its operation is open.
	FlagOpen
	// FlagBlind: its operation is blind (trace contract, section 12.9).
	FlagBlind
	// FlagDefinite: its operation failed for good (guard contract, section 1,
	// trustDefiniteFailures).
	FlagDefinite
	// FlagUnreadable: it cannot be summed: see [Payment.Readable].
	FlagUnreadable
	// FlagSmaller: its scheme is upto and less was settled than authorised: what a
	// policy with trustSettledAmounts believes.
	FlagSmaller
	// FlagUnknownNetwork: it names a network that is not known.
	FlagUnknownNetwork
	// FlagSeveral: it counts with several payees or hosts, so the index holds a row
	// for each. FlagRepeat is on all of these but the first.
	FlagSeveral
	FlagRepeat
	// FlagNamed: the names of the row are not those this side paid on: an answer
	// alone, or an offer that names several, says that they have a part in it.
	FlagNamed
)

// Flags are those of a payment of the operation s, but for the last three, which
// belong to rows.
func (s *Summary) Flags(p *Payment) int {
	smaller := p.Paired && p.Scheme == "upto" && p.Settled != "" && p.Amount != "" && Cmp(p.Settled, p.Amount) < 0
	return flag(FlagUnanswered, !p.Answered) | flag(FlagPaired, p.Paired) | flag(FlagAmbiguous, p.Ambiguous) |
		flag(FlagVersion1, p.Version1) | flag(FlagOpen, s.Open) | flag(FlagBlind, s.Blind != "") |
		flag(FlagDefinite, s.DefiniteFailure) | flag(FlagUnreadable, !p.Readable()) | flag(FlagSmaller, smaller) |
		flag(FlagUnknownNetwork, p.Network != "" && !p.NetworkKnown)
}

func flag(bit int, on bool) int {
	if on {
		return bit
	}
	return 0
}

// settlements numbers the settlement words for the index. The numbers are stored;
// a new word goes to the end. Unknown is there twice: the second time for
// operations that are open, which a settlement that leaves other payments
// unexplained is not.
var settlements = []string{WordNone, WordOpen, WordSettled, WordFailed, WordUnknown, WordUnknown}

const openUnknown = 5

// SettlementNumber is the number the index keeps for Settlement and Open.
func (s *Summary) SettlementNumber() int {
	if s.Settlement == WordUnknown && s.Open {
		return openUnknown
	}
	return max(0, slices.Index(settlements, s.Settlement))
}

// SettlementWord is the word of such a number; of one that has none, unknown.
func SettlementWord(number int) string {
	if number < 0 || number >= len(settlements) {
		return WordUnknown
	}
	return settlements[number]
}

// SettlementOpen reports whether operations with such a number are open: money may
// have moved and no settlement closes them (guard contract, section 1,
// open_partial). One that failed for good is, unless the policy trusts that.
func SettlementOpen(number int, trustDefiniteFailures bool) bool {
	switch SettlementWord(number) {
	case WordOpen:
		return true
	case WordFailed:
		return !trustDefiniteFailures
	case WordUnknown:
		return number != slices.Index(settlements, WordUnknown)
	}
	return false
}
