package store

import (
	"context"
	"fmt"
	"os"
)

// The write-ahead log is emptied into the index as it goes, but it begins anew only
// when nobody reads from it, and somebody may always do. Where it has walLong bytes, a
// writer therefore waits for the readers of the moment, a little; walKept is what stays
// of it on disk then. It grows beyond that under a long transaction, or while somebody
// holds a snapshot.
const (
	walLong = 32 << 20
	walKept = 8 << 20
)

// For how many milliseconds readers are waited for: when it has to be, and when it can
// be done later just as well.
const (
	walWait  = 100
	trimWait = 10
)

// shorten lets a write-ahead log that has become long begin anew. Where readers keep it
// from that, it is tried again when it has grown further. mu is held.
func (x *Index) shorten() {
	n := x.walBytes()
	if n < walLong {
		x.wal = 0 // it began anew by itself
	}
	if n < walLong+x.wal {
		return
	}
	if x.wal = 0; !x.tx.checkpoint("RESTART", walWait) {
		x.wal = n - walLong + walKept
	}
}

// walBytes is how long the write-ahead log is; one that is not there has none.
func (x *Index) walBytes() int64 {
	info, err := os.Lstat(x.path + "-wal")
	if err != nil {
		return 0
	}
	return info.Size()
}

// Trim cuts a write-ahead log that is longer than what is kept of it, and tells whether
// it still is: somebody reads from it. It is for a moment when nothing is written.
func (x *Index) Trim() (long bool) {
	if x.walBytes() <= walKept {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.closed && !x.Moved() && !x.tx.checkpoint("TRUNCATE", trimWait) && x.walBytes() > walKept
}

// checkpoint empties the write-ahead log, waiting so many milliseconds for who reads
// from it, and tells whether all of it is in the index now.
func (t *Tx) checkpoint(how string, patience int) (done bool) {
	ctx := context.Background()
	wait := func(milliseconds int) error {
		_, err := t.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout(%d)", milliseconds))
		return err
	}
	if wait(patience) != nil {
		return false
	}
	var busy, frames, moved int
	err := t.conn.QueryRowxContext(ctx, "PRAGMA wal_checkpoint("+how+")").Scan(&busy, &frames, &moved)
	return wait(busyMillis) == nil && err == nil && busy == 0
}
