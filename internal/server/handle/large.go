package handle

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A large put (rendezvous). The value is too large for a message, so the
// client names the memory that holds it and the server READs it from there:
//
//	bounded staging memory -> READs in pieces, at most ORD in flight -> own
//	checksum over own copy -> Submit -> reply -> staging memory free
//
// A cache has no log to write the value to, so there the value is READ to the very place where
// its item will stand (store.Room), if memory is there for it: nobody can tell that
// from staging memory, of which it is counted as a part.
//
// The checksum came with the request. A mismatch means that the client's
// memory changed while the put was under way; without the check the server
// would make durable what no client wrote.

// errChecksum: what was READ is not what the client announced.
var errChecksum = errors.New("server: the value changed while it was being put")

// putLarge begins a large put. Everything that is refused without a READ is
// refused here.
func (r *op) putLarge(m wire.PutLarge) {
	switch {
	case len(m.Key) == 0:
		r.refuse(store.ErrKeyEmpty)
		return
	case len(m.Key) > maxKey:
		r.refuse(store.ErrKeyTooLarge)
		return
	case m.ValueLen > maxValue:
		r.refuse(store.ErrTooLarge)
		return
	case m.Addr+m.ValueLen < m.Addr:
		r.Violation(base.CauseBody, fmt.Errorf("value of %d bytes at %#x wraps around", m.ValueLen, m.Addr))
		return
	}
	w := store.Write{Op: store.Op{Key: m.Key}}
	if !r.terms(&w, m.Terms) || !r.TakeMore(m.ValueLen) {
		return
	}
	// A goroutine per large put: at most one for each credit, and all but
	// those that hold staging memory are parked.
	go r.rendezvous(m, w)
}

// rendezvous runs on a goroutine of its own. m.Key is a view of the receive.
func (r *op) rendezvous(m wire.PutLarge, w store.Write) {
	s := r.Session
	defer s.Flush()
	var room *store.Room
	stage, err := r.fetch(session.Remote{RKey: m.RKey, Addr: m.Addr, Size: m.ValueLen}, m.Checksum, func() memory.Room {
		if room = store.NewRoom(r.c.env.Store, len(w.Key), int(m.ValueLen), w.TTL); room == nil {
			return nil
		}
		return room
	})
	switch {
	case errors.Is(err, session.ErrFetch):
		r.Drop()
	case err != nil:
		r.refuse(err)
	default:
		r.stage = stage
		w.Value, w.Room = stage.Bytes(), room
		switch {
		case layout.IsPartKey(w.Key):
			if !mayPutPart(r, &w, m.Checksum) {
				return
			}
		case layout.IsHead(w.Value):
			putHead(r, w)
			return
		}
		r.submit(w)
	}
}

// fetch READs memory of the client into staging memory, which is the caller's, and
// compares what it is with its checksum, XXH3-64. room, if it is not nil, may name other memory
// (Staging.Get). errFetch: the session is dead, or dying.
func (r *op) fetch(from session.Remote, checksum uint64, room func() memory.Room) (*memory.Stage, error) {
	s, env := r.Session, r.c.env
	if err := s.BeginFetch(); err != nil {
		return nil, err
	}
	defer s.EndFetch()
	stage, err := env.Staging.Get(s.Context(), &s.Login.Account, s.Rail().Index, int(from.Size), room)
	if err != nil {
		return nil, err
	}
	sum, err := s.ReadInto(stage, from)
	if err == nil {
		env.Counters.RendezvousBytes.Add(int64(from.Size))
		if sum != checksum {
			err = errChecksum
		}
	}
	if err != nil {
		stage.Release()
		return nil, err
	}
	return stage, nil
}
