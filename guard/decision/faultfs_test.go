package decision

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"sort"
	"sync"

	"github.com/settlewatch/settlewatch/internal/safefile"
)

// disk is a file system in memory that can fail and crash at any call. What was
// not synced may or may not be there after a crash: of a file any state between
// two syncs, of a directory entry either of two.
type disk struct {
	mu    sync.Mutex
	calls int
	trace []string // what was called

	fail  func(call int, op string) error // nil: it works
	crash func(call int, op string) bool
	down  bool

	dir    bool // the guard directory is there
	names  map[string]*inode
	synced map[string]*inode // what the directory holds for certain
	locked bool
	pins   map[string][]byte
	ticks  int64
	inos   uint64
	rnd    *rand.Rand
}

type inode struct {
	ino    uint64
	data   []byte
	stable []byte   // what is on the disk for certain
	since  [][]byte // what it has been since then
	tick   int64
}

// crashed is what a call panics with when the machine goes down.
type crashed struct{}

var (
	errNoSpace = errors.New("no space left on device")
	errIO      = errors.New("input/output error")
)

func newDisk() *disk {
	return &disk{names: map[string]*inode{}, synced: map[string]*inode{}, pins: map[string][]byte{}, rnd: rand.New(rand.NewPCG(1, 2))}
}

// call counts a call and lets it fail or bring the machine down. All of them hold
// the mutex. When the machine is down nothing has any effect.
func (d *disk) call(op string) (dead bool, err error) {
	if d.down {
		return true, errIO
	}
	d.calls++
	d.trace = append(d.trace, op)
	if d.crash != nil && d.crash(d.calls, op) {
		d.down = true
		panic(crashed{})
	}
	if d.fail != nil {
		err = d.fail(d.calls, op)
	}
	return false, err
}

// restart is the disk after the machine came up again. worst keeps nothing that
// was not synced, best all; else chance decides.
func (d *disk) restart(how int) *disk {
	n := newDisk()
	n.rnd = rand.New(rand.NewPCG(uint64(how), 7))
	n.dir, n.inos, n.ticks = d.dir, d.inos, d.ticks
	pick := func() bool {
		switch how {
		case 0:
			return false
		case 1:
			return true
		}
		return n.rnd.IntN(2) == 0
	}
	copies := map[*inode]*inode{}
	after := func(f *inode) *inode {
		if c := copies[f]; c != nil {
			return c
		}
		data := f.stable
		switch {
		case how == 1:
			data = f.data
		case how > 1 && len(f.since) > 0:
			data = f.since[n.rnd.IntN(len(f.since))]
			// Of what was appended any part may be there.
			if len(data) > len(f.stable) && bytes.HasPrefix(data, f.stable) {
				data = data[:len(f.stable)+n.rnd.IntN(len(data)-len(f.stable)+1)]
			}
		}
		data = bytes.Clone(data)
		c := &inode{ino: f.ino, data: data, stable: data, tick: f.tick}
		copies[f] = c
		return c
	}
	all := map[string]bool{}
	for name := range d.names {
		all[name] = true
	}
	for name := range d.synced {
		all[name] = true
	}
	var names []string
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		now, before := d.names[name], d.synced[name]
		f := before
		if now != before && pick() {
			f = now
		}
		if f != nil {
			n.names[name] = after(f)
		}
	}
	for name, f := range n.names {
		n.synced[name] = f
	}
	for name, data := range d.pins {
		n.pins[name] = data
	}
	return n
}

func (d *disk) changed(f *inode) {
	d.ticks++
	f.tick = d.ticks
	f.since = append(f.since, bytes.Clone(f.data))
}

func (d *disk) Dir(path string, create bool) (Dir, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call("dir"); err != nil {
		return nil, err
	}
	if !d.dir {
		if !create {
			return nil, fs.ErrNotExist
		}
		d.dir = true
	}
	return diskDir{d}, nil
}

func (d *disk) ReadFile(path string, max int64) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call("read pin"); err != nil {
		return nil, err
	}
	data, ok := d.pins[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return bytes.Clone(data), nil
}

func (d *disk) WriteFile(path string, data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call("write pin"); err != nil {
		return err
	}
	d.pins[path] = bytes.Clone(data)
	return nil
}

type diskDir struct{ *disk }

func (f *inode) info() safefile.Info {
	return safefile.Info{Dev: 1, Ino: f.ino, Nlink: 1, Size: int64(len(f.data)), MtimeNs: f.tick, CtimeNs: f.tick, Regular: true, Kind: "file"}
}

func (d diskDir) Stat(name string) (safefile.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call("stat " + name); err != nil {
		return safefile.Info{}, err
	}
	f := d.names[name]
	if f == nil {
		return safefile.Info{}, fs.ErrNotExist
	}
	return f.info(), nil
}

func (d diskDir) Open(name string) (File, safefile.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call("open " + name); err != nil {
		return nil, safefile.Info{}, err
	}
	f := d.names[name]
	if f == nil {
		return nil, safefile.Info{}, fs.ErrNotExist
	}
	return &diskFile{d.disk, f, name}, f.info(), nil
}

func (d diskDir) Append(name string) (File, error) {
	f, _, err := d.Open(name)
	return f, err
}

func (d diskDir) Create(name string) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call("create " + name); err != nil {
		return nil, err
	}
	if d.names[name] != nil {
		return nil, fs.ErrExist
	}
	d.inos++
	f := &inode{ino: d.inos}
	d.changed(f)
	d.names[name] = f
	return &diskFile{d.disk, f, name}, nil
}

func (d diskDir) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call("rename"); err != nil {
		return err
	}
	if d.names[from] == nil {
		return fs.ErrNotExist
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	return nil
}

func (d diskDir) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call("remove " + name); err != nil {
		return err
	}
	if d.names[name] == nil {
		return fs.ErrNotExist
	}
	delete(d.names, name)
	return nil
}

func (d diskDir) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call("sync dir"); err != nil {
		return err
	}
	d.synced = map[string]*inode{}
	for name, f := range d.names {
		d.synced[name] = f
	}
	return nil
}

func (d diskDir) Lock(string) (func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.call("lock"); err != nil {
		return nil, err
	}
	if d.locked {
		return nil, ErrLocked
	}
	d.locked = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.locked = false
	}, nil
}

func (d diskDir) Close() error { return nil }

type diskFile struct {
	d    *disk
	f    *inode
	name string
}

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if _, err := f.d.call("read " + f.name); err != nil {
		return 0, err
	}
	if off >= int64(len(f.f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Write may write a part before it fails, or before the machine goes down.
func (f *diskFile) Write(p []byte) (n int, err error) {
	d := f.d
	d.mu.Lock()
	defer d.mu.Unlock()
	part := func() {
		f.f.data = append(bytes.Clone(f.f.data), p[:d.rnd.IntN(len(p)+1)]...)
		d.changed(f.f)
	}
	defer func() {
		if r := recover(); r != nil {
			part()
			panic(r)
		}
	}()
	dead, err := d.call("write " + f.name)
	if dead {
		return 0, err
	}
	if err != nil {
		before := len(f.f.data)
		part()
		return len(f.f.data) - before, err
	}
	f.f.data = append(bytes.Clone(f.f.data), p...)
	d.changed(f.f)
	return len(p), nil
}

func (f *diskFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if _, err := f.d.call("truncate " + f.name); err != nil {
		return err
	}
	if size > int64(len(f.f.data)) {
		return fmt.Errorf("truncate to %d of %d bytes", size, len(f.f.data))
	}
	f.f.data = bytes.Clone(f.f.data[:size])
	f.d.changed(f.f)
	return nil
}

func (f *diskFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if _, err := f.d.call("sync " + f.name); err != nil {
		return err
	}
	f.f.stable, f.f.since = bytes.Clone(f.f.data), nil
	return nil
}

func (f *diskFile) Close() error { return nil }
