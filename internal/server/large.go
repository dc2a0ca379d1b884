package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store"
)

// A large put (rendezvous). The value is too large for a message, so the
// client names the memory that holds it and the server READs it from there:
//
//	bounded staging memory -> READs in pieces, at most ORD in flight -> own
//	checksum over own copy -> Submit -> reply -> staging memory free
//
// The checksum came with the request. A mismatch means that the client's
// memory changed while the put was under way; without the check the server
// would make durable what nobody wrote.

// errChecksum: what was READ is not what the client announced.
var errChecksum = errors.New("server: the value changed while it was being put")

// putLarge begins a large put. Everything that is refused without a READ is
// refused here.
func (r *request) putLarge() {
	m, err := wire.ParsePutLarge(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
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
		r.violation(causeBody, fmt.Errorf("value of %d bytes at %#x wraps around", m.ValueLen, m.Addr))
		return
	}
	w := store.Write{Key: m.Key}
	if !r.terms(&w, m.Terms) || !r.takeMore(m.ValueLen) {
		return
	}
	// A goroutine per large put: at most one for each credit, and all but
	// those that hold staging memory are parked.
	go r.rendezvous(m, w)
}

// rendezvous runs on a goroutine of its own. m.Key is a view of the receive.
func (r *request) rendezvous(m wire.PutLarge, w store.Write) {
	s := r.s
	defer s.flush()
	stage, err := r.fetch(remoteValue{rkey: m.RKey, addr: m.Addr, size: m.ValueLen, checksum: m.Checksum})
	switch {
	case errors.Is(err, errFetch):
		r.drop()
	case err != nil:
		r.refuse(err)
	default:
		r.stage = stage
		w.Value = stage.bytes()
		r.submit(w)
	}
}

// A remoteValue is memory of the client that the server READs.
type remoteValue struct {
	rkey     uint32
	addr     uint64
	size     uint64 // bytes
	checksum uint64 // XXH3-64 of them
}

// fetch READs memory of the client into staging memory, which is the caller's.
// errFetch: the session is dead, or dying.
func (r *request) fetch(m remoteValue) (*stage, error) {
	s := r.s
	// A few at a time per client (maxFetches), so that one that serves READs
	// slowly holds little staging memory.
	select {
	case s.fetchSem <- struct{}{}:
	case <-s.ctx.Done():
		return nil, errFetch
	}
	defer func() { <-s.fetchSem }()
	stage, err := s.srv.staging.get(s.ctx, s.login, s.lane.dev.index, int(m.size))
	if err != nil {
		return nil, err
	}
	if err := s.fetch(stage, m); err != nil {
		stage.release()
		return nil, err
	}
	return stage, nil
}

// errFetch: the READ did not complete; the session has been ended for it.
var errFetch = errors.New("server: READ from the client failed")

// A fetch is the READs of one large put.
type fetch struct {
	idx  uint32           // in lane.fetches
	done chan rdma.Status // one per completion; room for all in flight

	// sum is taken of the pieces that have come while the next ones travel: READs
	// of a queue pair complete in order, so the oldest piece is the one that is
	// done. nil where a peer may still write to what has come (stage.seal).
	sum    *xxh3.Hasher
	summed uint64
}

// took notes that the oldest piece has come.
func (f *fetch) took(stage *stage, n uint64) {
	if f.sum != nil {
		_, _ = f.sum.Write(stage.bytes()[f.summed : f.summed+n]) // never fails
		f.summed += n
	}
}

// fetch READs the value into stage and checks it. It returns only when no READ
// is outstanding: stage is the caller's again.
func (s *session) fetch(stage *stage, m remoteValue) error {
	f := &fetch{done: make(chan rdma.Status, maxReadDepth)}
	if stage.of.access&rdma.AccessRemoteMask == 0 {
		f.sum = xxh3.New()
	}
	if m.size > 0 {
		s.lane.addFetch(f)
		err := s.readAll(f, stage, m)
		s.lane.dropFetch(f)
		if err == nil {
			err = stage.seal()
		}
		if err != nil {
			return err
		}
	}
	s.srv.met.rendezvousBytes.Add(int64(m.size))
	if f.sumOf(stage) != m.checksum && !teeth.Off(teeth.D7ValueChecksum) {
		return errChecksum
	}
	return nil
}

// sumOf is the checksum of what has come.
func (f *fetch) sumOf(stage *stage) uint64 {
	if f.sum != nil {
		return f.sum.Sum64()
	}
	return xxh3.Hash(stage.bytes())
}

// readAll keeps up to depth pieces in flight until all have arrived.
func (s *session) readAll(f *fetch, stage *stage, m remoteValue) error {
	depth := max(1, min(s.lane.dev.readDepth, s.qp.Info().ORD)/cap(s.fetchSem))
	piece := uint64(s.lane.dev.maxRead)
	var next, taken uint64 // bytes asked for, and come
	flying := 0
	var failed error
	// Silence is counted in parts of the timeout: a client that serves nothing while
	// others wait for the memory loses it after the first.
	silent, part := 0, s.srv.cfg.SendTimeout/stallParts
	deadline := time.NewTimer(part)
	defer deadline.Stop()
	// Progress alone is not enough: a client that serves one piece just before
	// each deadline would keep staging memory, which others wait for, for an hour.
	whole := time.NewTimer(fetchTime(m.size, s.srv.cfg.SendTimeout))
	defer whole.Stop()
	for failed == nil && next < m.size || flying > 0 {
		for failed == nil && flying < depth && next < m.size {
			n := min(piece, m.size-next)
			if err := s.postRead(f, stage, m, next, uint32(n)); err != nil {
				failed = err
				break
			}
			next += n
			flying++
		}
		if flying == 0 {
			break
		}
		select {
		case st := <-f.done:
			flying--
			if st != rdma.StatusSuccess && failed == nil {
				failed = st.Err()
			}
			if failed == nil {
				f.took(stage, min(piece, m.size-taken))
				taken += piece
			}
			silent = 0
			deadline.Reset(part)
		case <-s.drained:
			// The QP is closed, so the memory is ours again; what has not completed by
			// now does not: the device is gone, and its CQ with it.
			flying = 0
			if failed == nil {
				failed = rdma.ErrPeerGone
			}
		case <-deadline.C:
			silent++
			wanted := s.srv.staging.line.wanted(stage)
			if silent < stallParts && !wanted {
				deadline.Reset(part)
				continue
			}
			if wanted {
				s.srv.loginHit(s.login, limitStaging)
			}
			// No progress. The READs flying still own the memory; ending the
			// session flushes them.
			failed = context.DeadlineExceeded
			s.end(causeSlow, errors.New("READ of a large value made no progress"))
		case <-whole.C:
			failed = context.DeadlineExceeded
			s.end(causeSlow, errors.New("READ of a large value took too long"))
		}
	}
	if failed != nil {
		s.end(causeOfRead(failed), failed)
		return fmt.Errorf("%w: %w", errFetch, failed)
	}
	return nil
}

// stallParts: staging memory that others wait for is given back after this part of
// SendTimeout without progress, 3 s by default; else after the whole of it.
const stallParts = 5

// fetchTime is how long the READs of a value of n bytes may take: one timeout,
// and one more for every 16 MiB, which asks 1 MiB/s of a client by default.
func fetchTime(n uint64, timeout time.Duration) time.Duration {
	return timeout + time.Duration(n>>10)*timeout>>14
}

// postRead posts one READ of n bytes at off within the value.
func (s *session) postRead(f *fetch, stage *stage, m remoteValue, off uint64, n uint32) error {
	sge := [1]rdma.SGE{{MR: stage.mr, Off: off, Len: n}}
	wr := [1]rdma.SendWR{{
		ID: workID(workRead, f.idx), Op: rdma.OpRDMARead, Flags: rdma.SendSignaled,
		SGL: sge[:], Remote: rdma.RemoteAddr{Addr: m.addr + off, RKey: m.rkey},
	}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return rdma.ErrNotConnected
	}
	if taken, err := s.qp.PostSend(wr[:]); taken == 0 {
		return err
	}
	return nil
}

// causeOfRead classes a failed READ: a client that names memory it has not
// granted is told from one that went away.
func causeOfRead(err error) cause {
	switch {
	case errors.Is(err, rdma.ErrAccess):
		return causeAccess
	case errors.Is(err, rdma.ErrPeerGone), errors.Is(err, rdma.ErrFlushed), errors.Is(err, rdma.ErrNotConnected):
		return causePeer
	}
	return causeFabric
}
