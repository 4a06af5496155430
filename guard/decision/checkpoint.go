package decision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// Checkpoint pins a log: it says how many lines it had and how the last one was
// signed. Kept elsewhere, it shows a log that was cut or begun anew (guard
// contract, section 7).
type Checkpoint struct {
	Count int64
	Sig   string    // of the line Count, "" when Count is 0
	At    time.Time // when it was taken
}

// Checkpoint is the checkpoint of a state.
func (s *State) Checkpoint(now time.Time) Checkpoint {
	return Checkpoint{Count: s.lines, Sig: s.sig, At: whole(now)}
}

// Append appends the checkpoint as one line of canonical JSON, with members at,
// count and sig.
func (c Checkpoint) Append(dst []byte) []byte {
	return fmt.Appendf(dst, `{"at":"%s","count":%d,"sig":"%s"}`+"\n", stamp(c.At), c.Count, c.Sig)
}

// maxCheckpoint is more bytes than a checkpoint has.
const maxCheckpoint = 4096

// ParseCheckpoint reads a checkpoint: one JSON object of exactly its members, with
// white space around it allowed. The error is an E_INPUT.
func ParseCheckpoint(src []byte) (c Checkpoint, err error) {
	refuse := func(why string) (Checkpoint, error) {
		return Checkpoint{}, errcode.New(errcode.Input, "give a file that `settlewatch audit checkpoint` wrote", "read the checkpoint: %s", why)
	}
	if len(src) > maxCheckpoint {
		return refuse("it is too long")
	}
	var doc jsjson.Doc
	if err := doc.Parse(src); err != nil {
		return refuse("it is not JSON: " + err.Error())
	}
	root := doc.Root()
	if _, err := canon.Append(nil, root, canon.JCS); err != nil {
		return refuse(err.Error())
	}
	members := 0
	for range root.Members() {
		members++
	}
	count, sig, at := root.Get("count"), root.Get("sig"), root.Get("at")
	if members != 3 || count.Kind() != jsjson.Number || sig.Kind() != jsjson.String || at.Kind() != jsjson.String {
		return refuse("its members are not count, sig and at")
	}
	c.Sig = string(sig.Text())
	if c.Count, err = strconv.ParseInt(string(count.Raw()), 10, 64); err != nil || c.Count < 0 {
		return refuse("its count is no number of lines")
	}
	if !hexOrEmpty(c.Sig) || (c.Sig == "") != (c.Count == 0) {
		return refuse("its sig is no signature")
	}
	if c.At, err = time.Parse(stampForm, string(at.Text())); err != nil {
		return refuse("its at is no instant in UTC with milliseconds")
	}
	return c, nil
}

// readPin reads the checkpoint that is kept. One that is not there yet pins
// nothing; one that cannot be read might pin anything.
func (l *Log) readPin() (Checkpoint, *Unsound) {
	if l.o.Checkpoint == "" {
		return Checkpoint{}, nil
	}
	src, err := l.o.FS.ReadFile(l.o.Checkpoint, maxCheckpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return Checkpoint{}, nil
	}
	var pin Checkpoint
	if err == nil {
		pin, err = ParseCheckpoint(src)
	}
	if err != nil {
		return pin, l.unsound(l.look.state, 0, "the checkpoint %s cannot be read: %v", l.o.Checkpoint, err)
	}
	return pin, nil
}

// keepsPin reports, as an error, that the checkpoint that is kept is not one of this
// log: before it is written over.
func (l *Log) keepsPin(ctx context.Context, dir Dir) error {
	k := &l.look
	pin, bad := l.readPin()
	if bad != nil {
		return bad
	}
	if pin.Count > k.lines {
		return l.unsound(k.state, 0, "it has %s, and a checkpoint pins %d", counted(k.lines), pin.Count)
	}
	if pin.Count == 0 {
		return nil
	}
	sig, recent := k.sigs.at(pin.Count, k.lines)
	if !recent {
		f, _, err := dir.Open(FileName)
		if err != nil {
			return l.cannot(err, "read the decisions log")
		}
		defer func() { _ = f.Close() }() // it was only read
		if sig, err = l.sigOf(ctx, f, k, pin.Count); err != nil {
			return l.cannot(err, "read the decisions log")
		}
	}
	if sig != pin.Sig {
		return l.unsound(k.state, pin.Count, "a checkpoint pins another line")
	}
	return nil
}

// writePin keeps the checkpoint up to date. An old one pins less, and nothing
// wrong, so that failing to is told to the operator and stops nobody.
func (l *Log) writePin() {
	if l.o.Checkpoint == "" {
		return
	}
	if err := l.o.FS.WriteFile(l.o.Checkpoint, l.look.state.Checkpoint(l.o.Now()).Append(nil)); err != nil {
		l.o.Log.Warn("the checkpoint of the decisions log could not be written", "file", l.o.Checkpoint, "error", err)
	}
}
