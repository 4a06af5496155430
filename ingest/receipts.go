package ingest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/store"
)

func completeness(full bool) string {
	if full {
		return "full"
	}
	return "partial"
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// counterparty is who was paid as people see it: the payee, else the host.
func counterparty(d *store.Detail) string {
	if d.Payee != nil {
		return payment.Display(*d.Payee)
	}
	return payment.Display(text(d.Host))
}

func runID(key []byte) string { return string(jsjson.FromSortKey(nil, key)) }

func ref(run, op []byte) Ref {
	return Ref{Run: runID(run), Operation: string(jsjson.FromSortKey(nil, op)), Null: len(op) == 0}
}

func linked(d *store.Detail) *Ref {
	if d.LinkRun == nil {
		return nil
	}
	r := ref(d.LinkRun, d.LinkOp)
	if d.LinkStray {
		r.Null, r.Unassigned = false, true
	}
	return &r
}

func (x *Indexer) template(name string) (*assemble.Resolved, error) {
	if name == "" {
		name = defaultTemplate
	}
	return x.Library().Resolve(name, x.o.ReadFile)
}

// run finds the run a caller names: "latest", an id, or "run:" and an id
// (trace contract, sections 12.2 and 12.4).
func (x *Indexer) run(v *store.View, name string) (*store.Run, error) {
	if name == "latest" {
		run, err := x.latest(v)
		if run == nil && err == nil {
			return nil, errcode.New(errcode.NoRuns, "check that the recorder writes to this root", "there is no run in %q", x.events)
		}
		return run, err
	}
	if id, ok := strings.CutPrefix(name, "run:"); ok {
		run, err := runByID(v, id)
		if err == nil || errcode.Of(err).Code != errcode.RunNotFound {
			return run, err
		}
		// An id may itself begin with "run:".
	}
	return runByID(v, name)
}

// latest is the last run of the listing that has operations, or damage that may hide
// some: a damaged run is not empty, and an answer from an older one would keep quiet
// about it. Where there is neither it is the last run; nil where there is none.
func (x *Indexer) latest(v *store.View) (*store.Run, error) {
	run, err := v.Latest(true)
	if err != nil {
		return nil, err
	}
	var place []byte
	if run != nil {
		place = run.FileKey
	}
	newer, err := v.DamagedAfter(place)
	if err != nil {
		return nil, err
	}
	for i := range newer {
		if x.damaged(&newer[i]) {
			return &newer[i], nil
		}
	}
	if run == nil {
		return v.Latest(false)
	}
	return run, nil
}

// runByID finds the run of an id.
func runByID(v *store.View, id string) (*store.Run, error) {
	runs, err := v.RunsByKey(jsjson.SortKey(nil, []byte(id)))
	if err != nil {
		return nil, err
	}
	switch len(runs) {
	case 0:
		return nil, runNotFound(id)
	case 1:
		return &runs[0], nil
	}
	return nil, errcode.New(errcode.RunDamaged, "rename one of the files", "two run files have the id %q", id)
}

func runNotFound(name string) error {
	return errcode.New(errcode.RunNotFound, "list operations of every run, or the runs with `settlewatch status --runs`", "there is no run %q", name)
}

// Receipt assembles one operation's receipt from its own lines. The run is
// addressed by its id, whatever that is; Resolve takes "latest" and "run:".
func (x *Indexer) Receipt(ctx context.Context, r Ref, templateRef string) (*Receipt, error) {
	template, err := x.template(templateRef)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		var d *store.Detail
		err := x.Ask(ctx, func(v *store.View) error {
			run, err := runByID(v, r.Run)
			if err != nil {
				return err
			}
			var key []byte
			if !r.Null {
				if key = jsjson.SortKey(nil, []byte(r.Operation)); len(key) == 0 {
					return x.operationNotFound(r, run)
				}
			}
			if d, err = v.Operation(run.No, key); err == nil && d == nil {
				return x.operationNotFound(r, run)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		receipt, err := x.receipt(d, template)
		if !errors.Is(err, errChanged) {
			return receipt, err
		}
		// The bytes behind the spans are not what was indexed. The run is
		// compared whole and indexed again; a receipt is never guessed.
		x.suspects.Store(string(d.File), true)
		x.needFull.Store(true)
		if try == 3 {
			return nil, errcode.Wrap(err, errcode.RunDamaged, "ask again when the run file is no longer being rewritten", "read operation %q of run %q", r.Operation, runID(d.RunKey))
		}
	}
}

// operationNotFound says that a run does not have an operation, or that nobody can
// tell.
func (x *Indexer) operationNotFound(r Ref, run *store.Run) error {
	r.Run = runID(run.Key)
	if x.damaged(run) {
		return errcode.New(errcode.OperationNotFound, "list operations of every run with list_operations or `settlewatch list`, which say what is damaged",
			"run %q is damaged, and nothing of it that can be read has operation %q", r.Run, r.Operation)
	}
	return errcode.New(errcode.OperationNotFound, "list operations of that run with list_operations or `settlewatch list`", "run %q has no operation %q", r.Run, r.Operation)
}

func (x *Indexer) receipt(d *store.Detail, template *assemble.Resolved) (*Receipt, error) {
	spans, ok := store.Spans(d.Spans)
	if !ok {
		return nil, errChanged
	}
	lines, err := (sourceReader{open: x.openEvents}).lines(string(d.File), spans, d.CRC)
	if err != nil {
		return nil, err
	}
	assembled, err := assemble.One(template.Template, lines)
	if err != nil {
		return nil, err
	}
	return &Receipt{Receipt: assembled, Ref: ref(d.RunKey, d.Key), Template: template,
		Damaged:    d.RunFaults > 0 || x.tornIsDamage(d.RunTorn, d.RunStat.MtimeNs),
		Settlement: settlementAt(d, x.now().UnixMilli()), Linked: linked(d), Blind: text(d.Blind),
		Counterparty: counterparty(d), Amount: text(d.Amount), Asset: text(d.Asset), Resource: text(d.Resource)}, nil
}

// Resolve completes an operation id given as a unique prefix within a run
// (trace contract, section 7, "Lookup"); an exact id comes first.
func (x *Indexer) Resolve(ctx context.Context, r Ref) (Ref, error) {
	var out Ref
	err := x.Ask(ctx, func(v *store.View) error {
		run, err := x.run(v, r.Run)
		if err != nil {
			return err
		}
		out = Ref{Run: runID(run.Key), Operation: r.Operation, Null: r.Null}
		if r.Null {
			return nil
		}
		prefix := jsjson.SortKey(nil, []byte(r.Operation))
		if len(prefix) == 0 {
			return x.operationNotFound(r, run)
		}
		d, err := v.Operation(run.No, prefix)
		if err != nil || d != nil {
			return err
		}
		keys, err := v.WithPrefix(run.No, prefix, 11)
		if err != nil {
			return err
		}
		switch len(keys) {
		case 0:
			return x.operationNotFound(r, run)
		case 1:
			out.Operation = string(jsjson.FromSortKey(nil, keys[0]))
			return nil
		}
		var ids []string
		for _, k := range keys[:min(len(keys), 10)] {
			ids = append(ids, string(jsjson.FromSortKey(nil, k)))
		}
		if len(keys) > 10 {
			ids = append(ids, "...")
		}
		return errcode.New(errcode.OperationAmbiguous, "give more of the id: "+strings.Join(ids, ", "), "%q begins several operations of run %q", r.Operation, out.Run)
	})
	return out, err
}

// Await waits until nothing more can be learnt of an operation (it is full, or
// its money is settled or refused) or the time is over. An operation of
// a known run that has not appeared yet is waited for.
func (x *Indexer) Await(ctx context.Context, r Ref, templateRef string, wait time.Duration) (*Await, error) {
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		var happened <-chan struct{}
		if w := x.watcher.Load(); w != nil {
			happened = w.happened()
		}
		a := &Await{Ref: r, Completeness: "partial", Settlement: payment.WordUnknown}
		receipt, err := x.Receipt(ctx, r, templateRef)
		switch {
		case err == nil:
			a.Ref, a.Recorded, a.Template, a.Settlement = receipt.Ref, true, receipt.Template.Name, receipt.Settlement
			a.Completeness = completeness(receipt.Full())
			if receipt.Full() || a.Settlement == payment.WordSettled || a.Settlement == payment.WordFailed {
				return a, nil
			}
		case errcode.Of(err).Code == errcode.OperationNotFound && (r.Operation != "" || r.Null):
			template, err := x.template(templateRef)
			if err != nil {
				return nil, err
			}
			a.Template = template.Name
		default:
			return nil, err
		}
		poll, stop := context.WithTimeout(timed, pollEvery/4)
		select {
		case <-happened:
		case <-poll.Done():
		}
		stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if timed.Err() != nil {
			a.TimedOut = true
			return a, nil
		}
	}
}
