package decision

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

// Options say where a log is and what it goes by.
type Options struct {
	Dir        string           // the guard directory, resolved; made by the first write, its parent must exist
	Now        func() time.Time // the clock
	FS         FS               // nil for the real one
	LockWait   time.Duration    // how long a write waits for others; 0 means two seconds
	Operators  []Operator       // whose signatures loosen; none: everything counts
	Checkpoint string           // a file to keep a checkpoint in; "" for none
	Log        *slog.Logger     // nil for none
}

// Log is the decisions log of one guard directory. Its methods may be called from
// many goroutines, and any number of processes may have one on the same directory.
type Log struct {
	o         Options
	operators map[string]operator
	turn      chan struct{} // whoever writes has put something in

	mu     sync.Mutex // guards what follows
	look   look
	last   file     // as of the last look, whatever it came to
	bad    *Unsound // what it came to, when the log was not sound
	synced bool     // the file's entry in its directory is durable
	stable int64    // bytes of the file that are
}

// file is whether the log is there, and which file it is.
type file struct {
	exists bool
	info   safefile.Info
}

// look is what is known of the file: its verified beginning, what that adds up to,
// and how the file looked then.
type look struct {
	*verifier
	file
	fold  *fold
	state *State // a snapshot of fold
	doubt bool   // a write failed: what is on disk has to be read again from its start
}

// Names of our files in the guard directory.
const (
	FileName = "decisions.ndjson"
	lockName = "lock"
)

// ErrLocked is wrapped by the error of a write that did not get the lock in time.
var ErrLocked = errors.New("another process holds the lock")

// Unsound says why the log does not verify (guard contract, section 7).
type Unsound struct {
	Path    string
	Line    int64  // the line that does not follow, from 1; 0 when it is none in particular
	Reason  string // one sentence without the line
	Foreign bool   // it looks like the log of another program
	// State is what could be read: the verified lines before the fault, and what
	// tightens of those after it. It is nil only in a [Report].
	State *State
}

// Error names the line and the reason.
func (u *Unsound) Error() string { return u.coded().Error() }

// Unwrap gives the error its code.
func (u *Unsound) Unwrap() error { return u.coded() }

func (u *Unsound) coded() *errcode.Error {
	hint := "look at it with `settlewatch audit verify`; `settlewatch audit recover` begins a new log and carries on what tightens; both take the --checkpoint a server keeps"
	if u.Foreign {
		hint = "if another program wrote it, `settlewatch audit adopt` begins a new log and carries on what tightens"
	}
	where := ""
	if u.Line > 0 {
		where = fmt.Sprintf("line %d: ", u.Line)
	}
	return errcode.New(errcode.LogUnsound, hint, "verify the decisions log %s: %s%s", u.Path, where, u.Reason)
}

// Open makes a Log. It makes nothing on disk and reads nothing yet; a log that is
// not there is an empty one. The error is an E_OPERATOR_KEY.
func Open(o Options) (*Log, error) {
	if o.FS == nil {
		o.FS = osFS{}
	}
	if o.LockWait == 0 {
		o.LockWait = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Log{o: o, operators: map[string]operator{}, turn: make(chan struct{}, 1)}
	for _, op := range o.Operators {
		key, err := publicKey(op.PublicKey)
		if err != nil {
			return nil, errcode.Wrap(err, errcode.OperatorKey, "copy it from the output of `settlewatch operator init`", "read the public key of operator %q", op.Name)
		}
		if _, twice := l.operators[op.PublicKey]; twice {
			return nil, errcode.New(errcode.OperatorKey, "keep one of them", "two operators have the same public key")
		}
		l.operators[op.PublicKey] = operator{op, key}
	}
	l.look = l.nothing()
	return l, nil
}

// publicKey reads the one spelling of a public key.
func publicKey(s string) (ed25519.PublicKey, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != ed25519.PublicKeySize || base64.StdEncoding.EncodeToString(b) != s {
		return nil, errors.New("it is not the base64 of 32 bytes")
	}
	return b, nil
}

// nothing is the look of a log that has not been looked at.
func (l *Log) nothing() look {
	f := newFold(l.operators)
	return look{verifier: newVerifier(), fold: f, state: f.snapshot()}
}

// GoesBy reports whether these are the operators whose signatures loosen here.
func (l *Log) GoesBy(operators []Operator) bool { return slices.Equal(l.o.Operators, operators) }

// policyMark is in the canonical text of every policy line and of no other.
var policyMark = []byte(`"type":"policy"`)

// Glance gives [State.Policy] and [State.MannedPolicy] as they will be when the log
// verifies. It verifies nothing, at a small part of what that costs: good for a guess
// at how a log is to be opened, which has to be held to what Read gives.
func (l *Log) Glance(ctx context.Context) (last, manned *Policy) {
	dir, err := l.o.FS.Dir(l.o.Dir, false)
	if err != nil {
		return nil, nil
	}
	defer func() { _ = dir.Close() }() // it was only read through
	f, info, err := dir.Open(FileName)
	if err != nil {
		return nil, nil
	}
	defer func() { _ = f.Close() }() // it was only read
	seen := newFold(nil)
	_ = eachLine(ctx, f, 0, info.Size, func(raw []byte) error { // what was seen so far is a guess as well
		if bytes.Contains(raw, policyMark) {
			if in := lenient(raw, l.o.Now()); in != nil {
				seen.apply(in)
			}
		}
		return nil
	})
	return seen.policy, seen.manned
}

// Path is where the log is.
func (l *Log) Path() string { return filepath.Join(l.o.Dir, FileName) }

// Read folds what was appended since the last call and gives the state. It takes
// no lock, and costs one look at the file when nothing was appended.
//
// The error is an *Unsound when the log does not verify, and an E_LOG_WRITE when
// the file cannot be read as a log at all. The state is then what could be read,
// or what had been read before; it is never nil.
func (l *Log) Read(ctx context.Context) (*State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dir, err := l.o.FS.Dir(l.o.Dir, false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return l.look.state, l.cannot(err, "open the guard directory")
	}
	if err != nil {
		return l.refresh(ctx, nil)
	}
	defer func() { _ = dir.Close() }() // it was only read through
	return l.refresh(ctx, dir)
}

// Update takes the lock, folds what was appended, lets fn decide, appends what it
// returned with one write and syncs it to disk. It gives the state with those
// lines in it. Nothing is written when fn returns nothing or an error, and that
// error comes back as it is.
//
// Other errors: one that wraps [ErrLocked] when the lock was not had in time,
// *Unsound, E_LOG_WRITE when the lines could not be written (then none of them
// counts), and an error with the code of the act when one of them would have
// changed nothing: a signature that does not count, a review that is decided.
func (l *Log) Update(ctx context.Context, actor string, fn func(s *State) ([]Body, error)) (*State, error) {
	var state *State
	err := l.locked(ctx, func(dir Dir) error {
		l.mu.Lock()
		before, err := l.refresh(ctx, dir)
		if err == nil {
			err = l.settle(dir)
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
		// Others may read meanwhile; nobody can append.
		bodies, err := fn(before)
		if err != nil {
			return err
		}
		if state = before; len(bodies) == 0 {
			return nil
		}
		entries := make([]entry, len(bodies))
		for i, b := range bodies {
			entries[i] = entry{actor, b}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		state, err = l.append(ctx, dir, entries)
		return err
	})
	if err != nil {
		return nil, err
	}
	return state, nil
}

// locked runs fn with the lock.
func (l *Log) locked(ctx context.Context, fn func(dir Dir) error) error {
	wait, cancel := context.WithTimeout(ctx, l.o.LockWait)
	defer cancel()
	late := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return errcode.Wrap(ErrLocked, errcode.LogWrite, "ask again in a moment; `settlewatch doctor` says who has it", "wait %s for the lock of the decisions log", l.o.LockWait)
	}
	select {
	case l.turn <- struct{}{}: // whatever the time is: what is free is taken
	default:
		select {
		case l.turn <- struct{}{}:
		case <-wait.Done():
			return late()
		}
	}
	defer func() { <-l.turn }()
	dir, err := l.o.FS.Dir(l.o.Dir, true)
	if err != nil {
		return l.cannot(err, "open the guard directory")
	}
	defer func() { _ = dir.Close() }() // what was written has been synced
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		release, err := dir.Lock(lockName)
		if err == nil {
			defer release()
			return fn(dir)
		}
		if !errors.Is(err, ErrLocked) {
			return l.cannot(err, "lock the decisions log")
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-wait.Done():
			timer.Stop()
			return late()
		}
	}
}

// cannot words an error of the file system.
func (l *Log) cannot(err error, what string) error {
	var coded *errcode.Error
	if errors.As(err, &coded) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errcode.Wrap(err, errcode.LogWrite, "see that "+l.o.Dir+" is a directory of this user with space left, or name another with --guard-dir", "%s", what)
}

// unsound makes the error of a log that does not verify, around what is known.
func (l *Log) unsound(state *State, line int64, format string, args ...any) *Unsound {
	return &Unsound{Path: l.Path(), Line: line, Reason: fmt.Sprintf(format, args...), State: state}
}

// counted is a number of lines in words.
func counted(n int64) string {
	if n == 1 {
		return "1 line"
	}
	return fmt.Sprintf("%d lines", n)
}

// refresh looks at the file, verifies what is new in it and folds that. dir is nil
// where there is no guard directory.
func (l *Log) refresh(ctx context.Context, dir Dir) (*State, error) {
	there, err := stat(dir)
	if err != nil {
		return l.look.state, l.cannot(err, "look at the decisions log")
	}
	if there.exists && there == l.last && !l.look.doubt {
		if l.bad != nil {
			return l.bad.State, l.bad
		}
		return l.look.state, nil
	}
	pin, bad := l.readPin()
	for try := 0; bad == nil; try++ {
		if bad, err = l.examine(ctx, dir, there, pin); err != nil || bad == nil || try == 2 {
			break
		}
		// A reader has no lock: what it saw may have been a writer at work, who sets
		// a torn tail aside.
		now, err := stat(dir)
		if err != nil || now == there {
			break
		}
		there, bad = now, nil
	}
	if err != nil {
		return l.look.state, l.cannot(err, "read the decisions log")
	}
	if l.bad = bad; bad != nil {
		l.last = there
		return bad.State, bad
	}
	l.last = l.look.file
	return l.look.state, nil
}

func stat(dir Dir) (f file, err error) {
	if dir == nil {
		return f, nil
	}
	info, err := dir.Stat(FileName)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	return file{true, info}, usable(info)
}

// usable refuses what must not be taken for the log: what a link leads to, and
// what can be changed under another name.
func usable(info safefile.Info) error {
	if !info.Regular {
		return &safefile.NotRegular{Name: FileName, Reason: "is a " + info.Kind}
	}
	if info.Nlink > 1 {
		return &safefile.NotRegular{Name: FileName, Reason: fmt.Sprintf("has %d names (hard links)", info.Nlink)}
	}
	return nil
}

// examine compares the file with what is known of it, verifies the rest, and takes
// over what verified.
func (l *Log) examine(ctx context.Context, dir Dir, there file, pin Checkpoint) (*Unsound, error) {
	k := &l.look
	known := k.state // what this process has believed so far
	if !there.exists {
		if n := max(known.lines, pin.Count); n > 0 {
			return l.unsound(known, 0, "it is gone, and it had at least %s", counted(n)), nil
		}
		l.look = l.nothing()
		return nil, nil
	}
	f, info, err := dir.Open(FileName)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if err := usable(info); err != nil {
		return nil, err
	}
	next := *k
	if k.doubt || k.bytes == 0 {
		next = l.nothing()
	}
	// What another process has written since this one looked may forbid what is
	// asked about, and it counts however the lines before it came to harm.
	harmed := func(line int64, format string, args ...any) (*Unsound, error) {
		return l.unsound(l.unseen(ctx, f, info.Size), line, format, args...), nil
	}
	if known.lines > 0 && (info.Dev != k.info.Dev || info.Ino != k.info.Ino) {
		return harmed(0, "it was replaced by another file; if a person did that, start this process again")
	}
	if info.Size < next.bytes {
		return harmed(0, "it has become shorter than the %s this process has seen", counted(known.lines))
	}
	if next.bytes > 0 {
		// A file that changed without growing was changed where it had been read.
		ok, err := k.stands(ctx, f, info.Size <= k.info.Size)
		if err != nil {
			return nil, err
		}
		if !ok {
			return harmed(0, "lines that had been verified were changed")
		}
	}
	next.file, next.doubt = file{true, info}, false
	next.batch, next.batchRaw = nil, next.batchRaw[:0]
	next.old = l.o.Now().Add(-verdictsLast)

	pins := []Checkpoint{{Count: known.lines, Sig: known.sig}, pin}
	for _, p := range pins {
		// One among the lines that are not read again.
		if p.Count > 0 && p.Count <= next.lines {
			if sig, err := l.sigOf(ctx, f, &next, p.Count); err != nil {
				return nil, err
			} else if sig != p.Sig {
				return harmed(p.Count, "a checkpoint pins another line")
			}
		}
	}
	err = next.follow(ctx, f, info.Size, func(lines []*line) error {
		for _, in := range lines {
			for _, p := range pins {
				if p.Count == in.Seq && p.Sig != in.Sig {
					return &broken{line: in.Seq, reason: "it is another line than the one that was there, or that a checkpoint pins"}
				}
			}
			next.fold.apply(in)
		}
		return nil
	})
	var at *broken
	if err != nil && !errors.As(err, &at) {
		if next.lines >= known.lines {
			// What was read so far need not be read again.
			next.info.Size, next.info.MtimeNs = next.bytes, 0
			next.state = next.fold.snapshot()
			l.look = next
		} else {
			k.doubt = true
		}
		return nil, err
	}
	next.fold.torn = info.Size - next.bytes
	next.state = next.fold.snapshot()
	var bad *Unsound
	switch {
	case next.lines < known.lines:
		// Less than was known. Nothing of it is taken over; the next look compares
		// with what was known again.
		k.doubt = true
		why := fmt.Sprintf("it has %s, and this process has seen %d", counted(next.lines), known.lines)
		if at != nil {
			why = at.reason
		}
		return harmed(next.lines+1, "%s", why)
	case at != nil:
		bad = l.unsound(l.tightened(ctx, f, &next, info.Size), at.line, "%s", at.reason)
		bad.Foreign = at.foreign
	case next.lines < pin.Count:
		bad = l.unsound(next.state, 0, "it has %s, and a checkpoint pins %d", counted(next.lines), pin.Count)
	case next.fold.beginning != "":
		bad = l.unsound(next.state, 1, "%s", next.fold.beginning)
	}
	l.look = next
	return bad, nil
}

// sigOf is the sig of a verified line.
func (l *Log) sigOf(ctx context.Context, f io.ReaderAt, k *look, seq int64) (string, error) {
	if sig, ok := k.sigs.at(seq, k.lines); ok {
		return sig, nil
	}
	var n int64
	var sig string
	found := errors.New("found")
	var rd reader
	err := eachLine(ctx, f, 0, k.bytes, func(raw []byte) error {
		if n++; n < seq {
			return nil
		}
		if line, err := rd.read(raw); err == nil {
			sig = line.Sig
		}
		return found
	})
	if err != nil && !errors.Is(err, found) {
		return "", err
	}
	return sig, nil
}

// tightened is the state of what verified and of what tightens after that.
func (l *Log) tightened(ctx context.Context, f io.ReaderAt, k *look, size int64) *State {
	strict := k.fold.clone()
	// Whatever cannot be read of it permits nothing that what was read forbids.
	_ = eachLine(ctx, f, k.bytes, size, func(raw []byte) error {
		if in := lenient(raw, l.o.Now()); in != nil {
			strict.tighten(in)
		}
		return nil
	})
	return strict.snapshot()
}

// unseen is what this process has believed so far, and what tightens in lines it has
// not seen of a file that no longer has those it has seen.
func (l *Log) unseen(ctx context.Context, f io.ReaderAt, size int64) *State {
	known := l.look.state.Lines()
	strict := l.look.fold.clone()
	// As in tightened, what cannot be read permits nothing.
	_ = eachLine(ctx, f, 0, size, func(raw []byte) error {
		if in := lenient(raw, l.o.Now()); in != nil && in.Seq > known {
			strict.tighten(in)
		}
		return nil
	})
	return strict.snapshot()
}

// settle makes durable what others have written: one that was killed before it
// could may have left lines that a crash of the machine would take back, and what
// is decided now rests on them. The lock is held.
func (l *Log) settle(dir Dir) error {
	k := &l.look
	if k.bytes <= l.stable {
		return nil
	}
	f, _, err := dir.Open(FileName)
	if err == nil {
		defer func() { _ = f.Close() }() // what counts is synced
		err = f.Sync()
	}
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		return l.cannot(err, "make the decisions log durable")
	}
	l.synced, l.stable = true, k.bytes
	return nil
}

// append writes entries behind what is known and takes them over once they are on
// disk. The lock is held, and the file was looked at under it.
func (l *Log) append(ctx context.Context, dir Dir, entries []entry) (*State, error) {
	k := &l.look
	text, lines, err := compose(k.lines, k.sig, l.o.Now(), entries)
	if err != nil {
		return nil, errcode.Wrap(err, errcode.LogWrite, "report this", "write down a decision")
	}
	next := k.fold.clone()
	for _, in := range lines {
		before := next.ignoredTotal
		next.apply(in)
		if next.ignoredTotal > before {
			why := next.ignored[len(next.ignored)-1]
			return nil, errcode.New(why.code, "", "the %s line would change nothing: %s", why.Type, why.Why)
		}
	}
	if err := l.keepsPin(ctx, dir); err != nil {
		return nil, err
	}
	info, err := l.write(dir, text)
	if err != nil {
		// What is on disk now nobody knows; the next look reads it from its start.
		k.doubt, l.stable = true, 0
		return nil, l.cannot(err, "append to the decisions log")
	}
	k.accept(text, lines)
	next.torn = 0
	k.fold, k.state, k.file = next, next.snapshot(), file{true, info}
	l.last, l.stable = k.file, k.bytes
	l.writePin()
	return k.state, nil
}

// write appends text with one write, makes it durable, and says how the file looks
// then. When it fails it takes back what it had written, where that is possible.
func (l *Log) write(dir Dir, text []byte) (info safefile.Info, err error) {
	k := &l.look
	var f File
	if k.exists {
		f, err = dir.Append(FileName)
	} else {
		f, err = dir.Create(FileName)
	}
	if err != nil {
		return info, err
	}
	defer func() { _ = f.Close() }() // what counts was synced
	if k.exists {
		if err := l.setTornAside(dir, f); err != nil {
			return info, err
		}
	}
	n, err := f.Write(text)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil && !l.synced {
		// A file is not there after a crash before its entry is, and whoever made
		// this one may have been killed before that.
		err = dir.Sync()
		l.synced = err == nil
	}
	if err == nil {
		if info, err = dir.Stat(FileName); err == nil && info.Size != k.bytes+int64(len(text)) {
			err = fmt.Errorf("it has %d bytes where %d were expected: something that does not take the lock writes to it", info.Size, k.bytes+int64(len(text)))
			return info, err
		}
	}
	if err != nil {
		if undo := f.Truncate(k.bytes); undo == nil {
			_ = f.Sync() // the caller is told of the first error
		}
	}
	return info, err
}

// setTornAside moves what a crash left behind the last whole write into a file of
// its own, byte for byte, so that the next line begins on its own line.
func (l *Log) setTornAside(dir Dir, f File) error {
	k := &l.look
	size := k.info.Size - k.bytes
	if size == 0 {
		return nil
	}
	tail := func() io.Reader { return io.NewSectionReader(f, k.bytes, size) }
	name, err := keepAside(dir, fmt.Sprintf("torn-%d", k.lines+1), ".bin", size, tail)
	if err != nil {
		return err
	}
	if err := f.Truncate(k.bytes); err != nil {
		return err
	}
	k.info.Size = k.bytes
	l.o.Log.Warn("the decisions log ended in a part of a line, which was set aside", "bytes", size, "file", name)
	return f.Sync()
}

// keepAside copies size bytes to a new file, durably, under a name that was not
// taken: base, or base-2 and so on. One that holds the same already is enough.
func keepAside(dir Dir, base, ext string, size int64, src func() io.Reader) (name string, err error) {
	for i := 1; ; i++ {
		name = base + ext
		if i > 1 {
			name = fmt.Sprintf("%s-%d%s", base, i, ext)
		}
		f, err := dir.Create(name)
		if errors.Is(err, fs.ErrExist) && i < 10_000 {
			if ok, err := same(dir, name, size, src()); err != nil || ok {
				return name, err
			}
			continue
		}
		if err != nil {
			return "", err
		}
		n, err := io.Copy(f, src())
		if err == nil && n != size {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = f.Sync()
		}
		_ = f.Close() // what counts was synced
		if err == nil {
			err = dir.Sync()
		}
		if err != nil {
			_ = dir.Remove(name) // it may hold a part only; the whole is where it was
			return "", err
		}
		return name, nil
	}
}

// same reports whether a file holds exactly what src gives, and makes sure that it
// stays so.
func same(dir Dir, name string, size int64, src io.Reader) (bool, error) {
	f, info, err := dir.Open(name)
	var odd *safefile.NotRegular
	if errors.As(err, &odd) || err == nil && info.Size != size {
		if err == nil {
			_ = f.Close() // it was only looked at
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // it was only read
	have, want := sha256.New(), sha256.New()
	if _, err := io.Copy(have, io.NewSectionReader(f, 0, size)); err != nil {
		return false, err
	}
	if _, err := io.Copy(want, src); err != nil {
		return false, err
	}
	if !bytes.Equal(have.Sum(nil), want.Sum(nil)) {
		return false, nil
	}
	if err := f.Sync(); err != nil {
		return false, err
	}
	return true, dir.Sync()
}
