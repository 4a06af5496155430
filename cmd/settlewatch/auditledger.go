package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

// verifyLedger is audit verify for a ledger of the published CHP server (approvals
// contract, section 5).
func (a *app) verifyLedger(ctx context.Context, o auditOptions, args []string) error {
	if len(args) != 1 {
		return usage("audit verify --format chp takes the ledger as its one argument")
	}
	var anchor *approval.LedgerAnchor
	if o.checkpoint != "" {
		source, err := checkpointFile(o.checkpoint)
		if err != nil {
			return err
		}
		if anchor, err = readAnchor(source); err != nil {
			return errcode.Wrap(err, errcode.Input, `a file with {"count": rows, "head_sig": "sig of the last"}`, "read the checkpoint %s", plain.Quote(string(o.checkpoint), plain.Detail))
		}
	}
	file, err := openLedger(args[0])
	if err != nil {
		return errcode.Wrap(errcode.Bare(err), errcode.Input, "the path of a ledger", "read the ledger %s", plain.Quote(args[0], plain.Detail))
	}
	defer func() { _ = file.Close() }() // it was only read
	var rows approval.LedgerAnchor
	fault, err := leave(ctx, func() (fault *approval.LedgerFault, err error) {
		rows, fault, err = approval.VerifyLedger(file, anchor)
		return fault, err
	})
	if err != nil {
		return err
	}
	a.showLedger(&o, args[0], rows, anchor, fault)
	if fault != nil {
		return unsound
	}
	return nil
}

func readAnchor(source []byte) (*approval.LedgerAnchor, error) {
	var doc jsjson.Doc
	if err := doc.Parse(source); err != nil {
		return nil, err
	}
	anchor, err := approval.ParseLedgerAnchor(doc.Root())
	return &anchor, err
}

// openLedger opens a file that an auditor was handed.
func openLedger(path string) (*os.File, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	d, err := safefile.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	f, _, err := d.Open(filepath.Base(path))
	return f, err
}

func (a *app) showLedger(o *auditOptions, path string, rows approval.LedgerAnchor, anchor *approval.LedgerAnchor, fault *approval.LedgerFault) {
	tail := "NOT PINNED"
	if fault == nil && anchor != nil && anchor.Count == rows.Count {
		tail = "pinned"
	}
	if o.json {
		answer := object{{"shape", "audit-ledger/1"}, {"sound", fault == nil}, {"ledger", path}, {"rows", rows.Count}, {"head_sig", rows.HeadSig}, {"tail", tail}}
		if fault != nil {
			answer = append(answer, member{"fault", object{{"row", fault.Line}, {"reason", clean(fault.Reason)}}})
		}
		a.answer(answer)
		return
	}
	var s sheet
	s.row("ledger", path, "")
	s.row("rows", plain.Number(rows.Count), "")
	s.row("head sig", rows.HeadSig, "")
	a.showSheet(&s)
	a.say("tail: %s", tail)
	if fault != nil {
		a.put(red, "", "the ledger does not verify: "+fault.Error())
		return
	}
	a.say("the ledger verifies")
}

// ledgerRows takes whole lines of a log and writes what they say of approvals in the
// rows of the published CHP server's ledger (approvals contract, section 9.8).
type ledgerRows struct {
	to     io.Writer
	export approval.LedgerExport
}

func (r *ledgerRows) Write(line []byte) (int, error) {
	row, err := r.export.Line(bytes.TrimSuffix(line, []byte("\n")))
	if err != nil {
		return 0, errcode.Wrap(err, errcode.Internal, "report this", "export the log as a ledger")
	}
	if row == nil {
		return len(line), nil
	}
	if _, err := r.to.Write(append(row, '\n')); err != nil {
		return 0, err
	}
	return len(line), nil
}
