package memory

import (
	"sync"
	"sync/atomic"
)

// A Reader is a session that a follower stands for. Its methods are called by the
// turnover, which holds no lock then.
type Reader interface {
	// Dismiss asks the client to connect again.
	Dismiss()
	// Cut ends the session at once.
	Cut(why error)
}

// A Follower says by which tables of regions a session may READ, and so which rkeys may
// not go yet. It lives in its session and must not be copied. Learns and Uses may be called
// by several goroutines at once.
type Follower struct {
	reader Reader
	// oldest is the oldest view version that the client's READs may still use; 0
	// until it has asked for one.
	oldest atomic.Uint64
}

// Learns notes that the client is about to be told rkeys. It is called before the
// table is looked at: what it shows cannot be older than that.
func (f *Follower) Learns(version uint64) { f.oldest.CompareAndSwap(0, version) }

// Uses notes what the client says: nothing that it READs, or will, goes by a
// table before that version.
func (f *Follower) Uses(version uint64) {
	for {
		old := f.oldest.Load()
		if old == 0 || version <= old || f.oldest.CompareAndSwap(old, version) {
			return
		}
	}
}

// Followers are those of all sessions of a space. The zero value has none.
type Followers struct {
	mu  sync.Mutex // nothing is locked under it
	all map[*Follower]struct{}
}

// Add enters the follower of a session. It is called before the session can learn of rkeys.
func (fs *Followers) Add(f *Follower, reader Reader) {
	f.reader = reader
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.all == nil {
		fs.all = make(map[*Follower]struct{})
	}
	fs.all[f] = struct{}{}
}

// Remove takes it out. It is called when no READ of the session's queue pair completes any more.
func (fs *Followers) Remove(f *Follower) {
	fs.mu.Lock()
	delete(fs.all, f)
	fs.mu.Unlock()
}

// behind returns those that may still READ under views before that version.
func (fs *Followers) behind(version uint64) (late []*Follower) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for f := range fs.all {
		if v := f.oldest.Load(); v != 0 && v < version {
			late = append(late, f)
		}
	}
	return late
}
