package guard

import (
	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/store"
)

// ref is an operation's address as the log and answers have it. An answer in no
// operation has none but its run.
func ref(runKey, opKey []byte, stray bool) decision.Ref {
	r := decision.Ref{Run: decision.EncodeID(textOf(runKey))}
	if len(opKey) > 0 && !stray {
		id := decision.EncodeID(textOf(opKey))
		r.Operation = &id
	}
	return r
}

func textOf(key []byte) string { return string(jsjson.FromSortKey(nil, key)) }

func keyOf(id string) []byte { return jsjson.SortKey(nil, []byte(decision.DecodeID(id))) }

// refsOf gives the addresses of operations by number.
func refsOf(v *store.View, ops []int64) (map[int64]decision.Ref, error) {
	found, err := v.OperationRefs(ops)
	if err != nil {
		return nil, err
	}
	out := make(map[int64]decision.Ref, len(found))
	for no, r := range found {
		out[no] = ref(r.Run, r.Op, r.Stray)
	}
	return out, nil
}

func refOf(v *store.View, op int64) (decision.Ref, error) {
	refs, err := refsOf(v, []int64{op})
	return refs[op], err
}

// numbersOf gives the numbers of operations by address, 0 where there is none.
func numbersOf(v *store.View, refs []decision.Ref) ([]int64, error) {
	asked := make([]store.OperationRef, len(refs))
	for i, r := range refs {
		asked[i].Run = keyOf(r.Run)
		if r.Operation != nil {
			asked[i].Op = keyOf(*r.Operation)
		}
	}
	return v.OperationsByRef(asked)
}

// operation gives the number of one operation, and says what is wrong where there
// is none.
func operation(v *store.View, r decision.Ref) (int64, error) {
	numbers, err := numbersOf(v, []decision.Ref{r})
	if err != nil {
		return 0, err
	}
	if numbers[0] != 0 {
		return numbers[0], nil
	}
	runs, err := v.RunsByKey(keyOf(r.Run))
	switch {
	case err != nil:
		return 0, err
	case len(runs) == 0:
		return 0, errcode.New(errcode.RunNotFound, "list operations with `settlewatch list`", "no run has the id %s", plain.Quote(r.Run, plain.Detail))
	case len(runs) > 1:
		return 0, errcode.New(errcode.OperationAmbiguous, "rename one of the two run files", "two run files have the id %s", plain.Quote(r.Run, plain.Detail))
	}
	return 0, errcode.New(errcode.OperationNotFound, "list operations with `settlewatch list`", "run %s has no operation %s", plain.Quote(r.Run, plain.Detail), idText(r))
}

func idText(r decision.Ref) string {
	if r.Operation == nil {
		return "null"
	}
	return plain.Quote(*r.Operation, plain.Detail)
}

// operationText names an operation in a sentence.
func operationText(r decision.Ref) string {
	return "operation " + idText(r) + " of run " + plain.Quote(r.Run, plain.Detail)
}

// assetOf is the one asset of an operation's payments, "" when there is none or
// several.
func assetOf(v *store.View, op int64) (string, error) {
	paid, err := v.PaymentsOfOperations([]int64{op})
	if err != nil {
		return "", err
	}
	var asset int64
	for i := range paid {
		switch {
		case paid[i].Asset == 0 || paid[i].Asset == asset:
		case asset != 0:
			return "", nil
		default:
			asset = paid[i].Asset
		}
	}
	words, err := v.Words([]int64{asset})
	return words[asset], err
}
