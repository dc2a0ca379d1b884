package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/rdma"
)

// A Remote is memory of the client that a session READs.
type Remote struct {
	RKey uint32
	Addr uint64
	Size uint64 // bytes
}

// A Sink is registered memory that a session READs into. It has as many bytes as are
// READ, at the beginning of its region.
type Sink interface {
	MR() rdma.MR
	Bytes() []byte
	// Exposed reports whether a peer can write to the memory until Seal.
	Exposed() bool
	Seal() error
	// Wanted reports whether others wait for the memory.
	Wanted() bool
}

// errFetch: the READ did not complete; the session has been ended for it.
var ErrFetch = errors.New("server: READ from the client failed")

// BeginFetch waits until the client has few values READ (maxFetches), so that one
// that serves READs slowly holds little memory. After it endFetch must be called.
// errFetch: the session is dead, or dying.
func (s *Session) BeginFetch() error {
	select {
	case s.fetchSem <- struct{}{}:
		return nil
	case <-s.ctx.Done():
		return ErrFetch
	}
}

func (s *Session) EndFetch() { <-s.fetchSem }

// A fetch is the READs of one value.
type fetch struct {
	s    *Session
	into Sink
	from Remote
	idx  uint32           // in lane.fetches
	done chan rdma.Status // one per completion; room for all in flight

	// sum is taken of the pieces that have come while the next ones travel: READs
	// of a queue pair complete in order, so the oldest piece is the one that is
	// done. nil where a peer may still write to what has come (readSink.Seal).
	sum    *xxh3.Hasher
	summed uint64
}

// took notes that the oldest piece has come.
func (f *fetch) took(n uint64) {
	if f.sum != nil {
		_, _ = f.sum.Write(f.into.Bytes()[f.summed : f.summed+n]) // never fails
		f.summed += n
	}
}

// ReadInto READs memory of the client and returns its checksum, XXH3-64. It returns
// only when no READ is outstanding: the sink is the caller's again.
func (s *Session) ReadInto(into Sink, from Remote) (sum uint64, err error) {
	f := &fetch{s: s, into: into, from: from, done: make(chan rdma.Status, MaxReadDepth)}
	if !into.Exposed() && from.Size > sumWhole {
		f.sum = xxh3.New()
	}
	if from.Size > 0 {
		s.lane.addFetch(f)
		err := f.readAll()
		s.lane.dropFetch(f)
		if err == nil {
			err = into.Seal()
		}
		if err != nil {
			return 0, err
		}
	}
	return f.checksum(), nil
}

// sumWhole is up to how many bytes a value is summed up when all of it has come: it is in the
// processor's cache still, and a Hasher copies each block that it is given.
const sumWhole = 1 << 20

// checksum is that of what has come.
func (f *fetch) checksum() uint64 {
	if f.sum != nil {
		return f.sum.Sum64()
	}
	return xxh3.Hash(f.into.Bytes())
}

// readAll keeps up to depth pieces in flight until all have arrived.
func (f *fetch) readAll() error {
	s, size := f.s, f.from.Size
	depth := max(1, min(s.lane.rail.readDepth, s.qp.Info().ORD)/cap(s.fetchSem))
	piece := uint64(s.lane.rail.maxRead)
	var next, taken uint64 // bytes asked for, and come
	flying := 0
	var failed error
	// Silence is counted in parts of the timeout: a client that serves nothing while
	// others wait for the memory loses it after the first.
	silent, part := 0, s.group.cfg.SendTimeout/stallParts
	deadline := time.NewTimer(part)
	defer deadline.Stop()
	// Progress alone is not enough: a client that serves one piece just before
	// each deadline would keep staging memory, which others wait for, for an hour.
	whole := time.NewTimer(fetchTime(size, s.group.cfg.SendTimeout))
	defer whole.Stop()
	for failed == nil && next < size || flying > 0 {
		for failed == nil && flying < depth && next < size {
			n := min(piece, size-next)
			if err := f.post(next, uint32(n)); err != nil {
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
				f.took(min(piece, size-taken))
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
			wanted := f.into.Wanted()
			if silent < stallParts && !wanted {
				deadline.Reset(part)
				continue
			}
			if wanted {
				s.Login.Hit(s.group.Bounds, base.BoundStaging)
			}
			// No progress. The READs flying still own the memory; ending the
			// session flushes them.
			failed = context.DeadlineExceeded
			s.End(base.CauseSlow, errors.New("READ of a large value made no progress"))
		case <-whole.C:
			failed = context.DeadlineExceeded
			s.End(base.CauseSlow, errors.New("READ of a large value took too long"))
		}
	}
	if failed != nil {
		s.End(causeOfRead(failed), failed)
		return fmt.Errorf("%w: %w", ErrFetch, failed)
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

// post posts one READ of n bytes at off within the value.
func (f *fetch) post(off uint64, n uint32) error {
	s := f.s
	sge := [1]rdma.SGE{{MR: f.into.MR(), Off: off, Len: n}}
	wr := [1]rdma.SendWR{{
		ID: workID(workRead, f.idx), Op: rdma.OpRDMARead, Flags: rdma.SendSignaled,
		SGL: sge[:], Remote: rdma.RemoteAddr{Addr: f.from.Addr + off, RKey: f.from.RKey},
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
func causeOfRead(err error) base.Cause {
	switch {
	case errors.Is(err, rdma.ErrAccess):
		return base.CauseAccess
	case errors.Is(err, rdma.ErrPeerGone), errors.Is(err, rdma.ErrFlushed), errors.Is(err, rdma.ErrNotConnected):
		return base.CausePeer
	}
	return base.CauseFabric
}
