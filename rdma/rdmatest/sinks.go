package rdmatest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// READs into prepared sinks (rdma.SpinReader), on the devices that have them.

func sinkChecks() []check {
	return []check{
		{"ability", checkSinkAbility},
		{"every sink and length", checkSinkReads},
		{"what is refused", checkSinkRefusals},
		{"beside sends and receives", checkSinksBesideOthers},
		{"late", checkSinksLate},
		{"a refused read", checkSinkFault},
		{"close", checkSinksAtClose},
	}
}

// sinkSpin is for how long one call polls. Most READs end within it; a test goes on
// with those that do not.
const sinkSpin = 50 * time.Microsecond

// spins is a pair whose first end has sinks.
type spins struct {
	*pair
	qp   rdma.SpinReader
	mem  *region // the sinks, one behind the other
	src  *region // what is READ
	size int     // of a sink
	wcs  [8]rdma.WC
}

// newSpins connects a pair with n sinks; nil if the device has none.
func newSpins(t *testing.T, cfg *Config, n int) *spins {
	t.Helper()
	s := &spins{size: 4096}
	s.pair = newPair(t, cfg, pairOptions{
		a: rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: 64}},
		beforeConnect: func(p *pair) {
			qp, can := p.qa.(rdma.SpinReader)
			if !can || !p.a.has(rdma.CapSpinRead) {
				return
			}
			s.qp, s.mem = qp, p.a.region(n*s.size, rw(p.a))
			p.a.check("PrepareSinks", qp.PrepareSinks(s.places(n)))
		},
	})
	if s.qp == nil {
		return nil
	}
	s.src = s.b.region(1<<16, rw(s.b))
	fill(s.src.bytes(), 0x3c)
	return s
}

func (s *spins) places(n int) (list []rdma.SGE) {
	for i := range n {
		list = append(list, s.mem.sge(i*s.size, s.size))
	}
	return list
}

func (s *spins) sink(i int) []byte { return s.mem.bytes()[i*s.size : (i+1)*s.size] }

// enter books what ReadSpin or AwaitSpin has polled.
func (e *end) enter(id uint64, r rdma.SpinResult, wcs []rdma.WC) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	list := wcs[:r.Others]
	if r.State == rdma.SpinDone {
		list = append(list[:len(list):len(list)], rdma.WC{ID: id, Status: r.Status})
	}
	for _, wc := range list {
		if _, known := e.posted[wc.ID]; !known {
			e.t.Errorf("%s: completion of %d, which was never posted: %+v", e.name, wc.ID, wc)
		}
		if old, twice := e.got[wc.ID]; twice {
			e.t.Errorf("%s: %d completed twice: %+v and %+v", e.name, wc.ID, old, wc)
		}
		e.got[wc.ID] = wc
	}
}

// begin calls ReadSpin, and books what comes of it.
func (s *spins) begin(sink, n int, remote rdma.RemoteAddr, d time.Duration) (uint64, rdma.SpinResult) {
	s.a.t.Helper()
	id := s.a.id()
	s.a.mu.Lock()
	s.a.posted[id] = posting{what: "READ into a sink", signaled: true}
	s.a.mu.Unlock()
	r := s.qp.ReadSpin(sink, id, remote, uint32(n), s.wcs[:], d)
	if r.State == rdma.SpinRefused {
		s.a.mu.Lock()
		delete(s.a.posted, id)
		s.a.mu.Unlock()
		if r.Others != 0 {
			s.a.t.Errorf("%d completions with a READ that was refused", r.Others)
		}
		return id, r
	}
	s.a.enter(id, r, s.wcs[:])
	return id, r
}

// read READs into a sink and waits, and returns the status.
func (s *spins) read(sink, n int, remote rdma.RemoteAddr) rdma.Status {
	s.a.t.Helper()
	deadline := time.Now().Add(patience)
	id, r := s.begin(sink, n, remote, sinkSpin)
	if r.State == rdma.SpinRefused {
		s.a.t.Fatalf("a READ of %d bytes into sink %d was refused", n, sink)
	}
	for ; r.State != rdma.SpinDone; s.a.enter(id, r, s.wcs[:]) {
		if time.Now().After(deadline) {
			s.a.t.Fatalf("a READ of %d bytes into sink %d has not ended", n, sink)
		}
		if r = s.qp.AwaitSpin(sink, id, s.wcs[:], sinkSpin); r.State == rdma.SpinRefused {
			s.a.t.Fatal("AwaitSpin says that the READ was not posted")
		}
	}
	return r.Status
}

// good is read of bytes from off on, compared.
func (s *spins) good(sink, off, n int) {
	s.a.t.Helper()
	if st := s.read(sink, n, s.src.remote(off)); st != rdma.StatusSuccess {
		s.a.t.Fatalf("a READ of %d bytes into sink %d: %v", n, sink, st)
	}
	expectBytes(s.a.t, fmt.Sprintf("sink %d, %d bytes", sink, n), s.sink(sink)[:n], s.src.bytes()[off:off+n])
}

// checkSinkAbility: a device says whether it has them, and its queue pairs agree.
func checkSinkAbility(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	qp, can := p.qa.(rdma.SpinReader)
	mem := p.a.region(4096, rw(p.a))
	switch {
	case p.a.has(rdma.CapSpinRead) && !can:
		t.Error("CapSpinRead, and the queue pair is no SpinReader")
	case !p.a.has(rdma.CapSpinRead) && can:
		if err := qp.PrepareSinks([]rdma.SGE{mem.sge(0, 4096)}); !errors.Is(err, rdma.ErrNotSupported) {
			t.Errorf("PrepareSinks without CapSpinRead: %v", err)
		}
	}
	p.stillWorks()
}

func checkSinkReads(t *testing.T, cfg *Config) {
	const sinks = 5
	s := newSpins(t, cfg, sinks)
	if s == nil {
		return
	}
	fill(s.mem.bytes(), 0)
	for _, n := range []int{1, 7, 8, 64, 104, 1000, 4095, 4096} {
		for i := range sinks {
			before := append([]byte(nil), s.mem.bytes()...)
			s.good(i, n+8*i, n)
			copy(before[i*s.size:], s.sink(i)[:n])
			expectBytes(t, "memory beside the READ", s.mem.bytes(), before)
		}
	}
	for round := range cfg.rounds(2000) {
		s.good(round%sinks, 8*(round%1000), 104)
	}
	s.stillWorks()
}

func checkSinkRefusals(t *testing.T, cfg *Config) {
	const sinks = 2
	s := newSpins(t, cfg, sinks)
	if s == nil {
		return
	}
	at := s.src.remote(0)
	refused := func(what string, sink, n int) {
		t.Helper()
		if _, r := s.begin(sink, n, at, sinkSpin); r.State != rdma.SpinRefused {
			t.Errorf("%s: %+v", what, r)
		}
	}
	for _, c := range []struct {
		what    string
		sink, n int
	}{
		{"no such sink", sinks, 64}, {"sink -1", -1, 64}, {"a far sink", 1 << 40, 64},
		{"no bytes", 0, 0}, {"a byte more than the sink has", 0, s.size + 1}, {"-1 bytes", 0, -1},
	} {
		refused(c.what, c.sink, c.n)
	}
	if r := s.qp.ReadSpin(0, 0, at, 64, s.wcs[:], 0); r.State != rdma.SpinRefused {
		t.Errorf("without an ID: %+v", r)
	}
	if r := s.qp.ReadSpin(0, 1<<50, at, 64, nil, 0); r.State != rdma.SpinRefused {
		t.Errorf("without room for completions: %+v", r)
	}
	s.good(0, 0, 64)

	// What cannot be a sink.
	other, err := s.a.dev.AllocPD()
	s.a.check("AllocPD", err)
	s.a.closeLater("PD", other.Close)
	readOnly, foreign := s.a.region(64, rdma.AccessRemoteRead), s.a.regionIn(other, 64, rdma.AccessLocalWrite)
	for what, list := range map[string][]rdma.SGE{
		"none": nil, "no region": {{Len: 64}}, "no bytes": {s.mem.sge(0, 0)}, "read-only": {readOnly.sge(0, 64)},
		"another domain": {foreign.sge(0, 64)}, "beyond the end": {s.mem.sge(sinks*s.size-8, 16)}, "of a queue pair that has some": s.places(1),
	} {
		qp := s.qp
		if what != "of a queue pair that has some" {
			qp = s.a.qp(rdma.QPConfig{}).(rdma.SpinReader)
		}
		if err := qp.PrepareSinks(list); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("sinks, %s: %v, want ErrInvalid", what, err)
		}
	}
	// Not connected, without sinks, dead, closed.
	idle := s.a.qp(rdma.QPConfig{}).(rdma.SpinReader)
	if r := idle.ReadSpin(0, 1<<50, at, 64, s.wcs[:], 0); r.State != rdma.SpinRefused {
		t.Errorf("without sinks: %+v", r)
	}
	s.a.check("PrepareSinks", idle.PrepareSinks(s.places(1)))
	if r := idle.ReadSpin(0, 1<<50, at, 64, s.wcs[:], 0); r.State != rdma.SpinRefused {
		t.Errorf("not connected: %+v", r)
	}
	s.good(1, 8, 64)
	s.a.check("Disconnect", s.qa.Disconnect())
	refused("on a dead queue pair", 0, 64)
	s.a.check("Close", s.qa.Close())
	refused("on a closed queue pair", 0, 64)
}

// checkSinksBesideOthers: completions of other requests come along, each once.
func checkSinksBesideOthers(t *testing.T, cfg *Config) {
	s := newSpins(t, cfg, 2)
	if s == nil {
		return
	}
	into := [2]*region{s.a.region(64, rdma.AccessLocalWrite), s.b.region(64, rdma.AccessLocalWrite)}
	var ids [2][]uint64
	for round := range cfg.rounds(200) {
		ra, rb := s.a.recv(s.qa, into[0].sge(0, 64)), s.b.recv(s.qb, into[1].sge(0, 64))
		sa := s.a.post(s.qa, send(s.mem, 0, 64))[0]
		sb := s.b.post(s.qb, send(s.src, 0, 64))[0]
		ids[0], ids[1] = append(ids[0], ra, sa), append(ids[1], rb, sb)
		s.good(1, 8*round, 104)
		for e, end := range []*end{s.a, s.b} {
			for _, id := range ids[e] {
				end.ok(id)
			}
			ids[e] = ids[e][:0]
		}
	}
}

// checkSinksLate: a READ that nobody polls for completes as any other, and only its own
// sink changes.
func checkSinksLate(t *testing.T, cfg *Config) {
	const sinks = 4
	s := newSpins(t, cfg, sinks)
	if s == nil {
		return
	}
	for round := range cfg.rounds(200) {
		var ids []uint64
		for i := range sinks {
			id, r := s.begin(i, 512, s.src.remote(512*i+8*round), 0)
			if r.State == rdma.SpinRefused {
				t.Fatalf("READ %d of some at a time was refused", i)
			}
			ids = append(ids, id)
		}
		for i, id := range ids {
			s.a.ok(id)
			expectBytes(t, "a late sink", s.sink(i)[:512], s.src.bytes()[512*i+8*round:][:512])
		}
	}
	s.good(0, 0, 64)
}

// checkSinkFault: a READ that the peer refuses ends the connection, as a posted one does.
func checkSinkFault(t *testing.T, cfg *Config) {
	s := newSpins(t, cfg, 2)
	if s == nil {
		return
	}
	s.good(0, 0, 64)
	bad := s.src.remote(0)
	bad.RKey ^= 1
	if st := s.read(1, 64, bad); !isAny(st.Err(), rdma.ErrAccess) {
		t.Errorf("a wrong rkey: %v", st)
	}
	s.a.expectDone(s.qa, rdma.ErrAccess)
	if _, r := s.begin(0, 64, s.src.remote(0), 0); r.State != rdma.SpinRefused {
		t.Errorf("after it: %+v", r)
	}
}

// checkSinksAtClose: Close beside a goroutine that READs, and with READs under way.
func checkSinksAtClose(t *testing.T, cfg *Config) {
	for round := range cfg.rounds(20) {
		s := newSpins(t, cfg, 3)
		if s == nil {
			return
		}
		var wg sync.WaitGroup
		goOn, stop := make(chan struct{}), make(chan struct{})
		wg.Go(func() {
			for i := 0; ; i++ {
				id, r := s.begin(0, 104, s.src.remote(0), sinkSpin)
				for n := 0; r.State == rdma.SpinPending && n < 1000; n++ {
					r = s.qp.AwaitSpin(0, id, s.wcs[:], sinkSpin)
					s.a.enter(id, r, s.wcs[:])
				}
				if i == round {
					close(goOn)
				}
				if r.State != rdma.SpinDone || r.Status != rdma.StatusSuccess {
					break // what is pending comes with the other completions
				}
			}
			if _, open := <-stop; open {
				t.Error("no end")
			}
		})
		<-goOn
		s.a.check("Close", s.qa.Close())
		close(stop)
		wg.Wait()
		if _, r := s.begin(1, 64, s.src.remote(0), 0); r.State != rdma.SpinRefused {
			t.Errorf("after Close: %+v", r)
		}
	}
}
