package read

import (
	"context"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Replicated keys. What is READ at a node counts only if that node led the key's group when the get began. So beside the
// lookup at the leader a get READs cells (layout.Cell), in the same round trip:
//
//	the lookup's READs, and the leader's own cell ──▶ the node that is believed to lead
//	its cell                                      ──▶ another voter, or as many as make a majority with the leader
//
// and believes what it found if the leader's cell shows the term and the configuration that the leader has told of (session.GroupInfo), and each
// other cell that term. The rules, each with the failure that it prevents:
//
//	R13  every cell is READ after the get began; an older word says nothing of who was elected since
//	R14  what the leader has told was known before the first READ was posted; else the item could be older than the term
//	R15  the leader's own cell is one of them: it says which configuration the majority is one of
//	R16  a majority of the voters of that configuration; learners do not vote, so their words say nothing
//	R17  each cell counts within a lease of its node that was in force before its READ, because the memory of a process that
//	     is gone may answer still, and its words rise no more
//
// They need no order among each other, and further READs of the same get need no other words. Where it does not fit the leader is
// asked by SEND, which knows or says who leads.

// A words is what one get uses of cells; the zero value is that of a key without replicas.
type words struct {
	of    route.Led
	told  *session.GroupInfo // by the leader; nil: the get is by SEND, or its key has no replicas
	own   layout.Cell        // the leader's, once ownIs
	ownIs bool
	next  int // candidate that is asked next, in the order of route.Led.At
	n     int // of legs
	legs  [wire.MaxVoters / 2]leg
}

// A leg is a READ of another voter's cell.
type leg struct {
	s     *session.Session
	cell  layout.Place
	grant *session.Grant
	at    int64          // when it was posted, on the lease clock
	b     *session.Reads // under way; nil: it is over
	word  uint64
	holds bool // the word came, within the lease
}

// Patience is how long a voter may take, from when its answer is wanted, before another one is READ: wordPatience, because as a rule one that is there answers
// before the leader has, which has more to send; and where that took long, as it does for a client that has no processor for its calls, as long again, up to
// maxWordPatience: the voter's answer may have come, and not been taken yet.
const (
	wordPatience    = 5 * time.Millisecond
	maxWordPatience = 100 * time.Millisecond
)

// begin READs what it takes beside the lookup at the leader, s. false: it cannot be done one-sidedly now.
func (w *words) begin(s *session.Session, stripe int) bool {
	w.told, w.ownIs, w.n, w.next = nil, false, 0, 1
	if !s.Words {
		return false
	}
	told := s.Groups.Of(w.of.Group())
	switch {
	case told == nil:
		return false
	case told.Term == 0 || !isVoter(told, s.Node):
		s.Groups.Seek(w.of.Group()) // it may lead by now
		return false
	}
	w.of.Meet(s, told)
	w.told = told
	for range len(told.Voters) / 2 {
		if !w.ask(s, stripe) {
			s.Groups.Doubt(w.of.Group()) // those that can be asked may vote by now
			w.end()
			return false
		}
	}
	return true
}

// ask READs the cell of the next voter that can be asked. false: there is none.
func (w *words) ask(s *session.Session, stripe int) bool {
	for ; w.next < w.of.Len(); w.next++ {
		other, cell, ok := witness(w.of, w.told, s.Node, w.next)
		if !ok || !w.legs[w.n].post(other, cell, stripe) {
			continue
		}
		w.n++
		w.next++
		return true
	}
	return false
}

// witness is where the cell of the i-th replica behind that of the leader's node is READ. false: it has no vote (R16), or cannot be READ now, which is seen to.
func witness(of route.Led, told *session.GroupInfo, leader string, i int) (s *session.Session, cell layout.Place, ok bool) {
	node, p := of.At(leader, i)
	if !isVoter(told, node) {
		return nil, 0, false
	}
	s = p.Current()
	if s == nil || s.IsDown() {
		p.Replica.Seek()
		return nil, 0, false
	}
	if !s.Words || s.Groups.Slow() {
		return nil, 0, false
	}
	s.Lease.Use()
	if s.Lease.IsLapsed() {
		s.Owner.Wake() // gets are being made again: renew
		return nil, 0, false
	}
	info := s.Groups.Of(of.Group())
	if info == nil {
		return nil, 0, false
	}
	return s, info.Cell, true
}

func isVoter(told *session.GroupInfo, node string) bool {
	for _, v := range told.Voters {
		if v == node {
			return true
		}
	}
	return false
}

// post READs a cell, and does not wait for it. false: nothing was posted.
func (l *leg) post(s *session.Session, cell layout.Place, stripe int) bool {
	*l = leg{s: s, cell: cell, grant: s.Lease.Grant()} // before the READ (R17)
	if s.Mapped() {
		var buf [layout.CellRead]byte
		if status, known := s.ReadDirect(stripe, cell, buf[:]); known && status == rdma.StatusSuccess {
			l.came(buf[:], s.Now())
			s.Counts.Reads.Add(1)
			s.Counts.ReadBytes.Add(layout.CellRead)
			s.Counts.WordReads.Add(1)
			return true
		} // else the memory is not mapped: the READ is posted
	}
	b := s.NewReads(s.View())
	if _, err := b.Add(cell, layout.CellRead); err != nil {
		b.Release()
		return false
	}
	if s.Lease.TakeDue() {
		b.AddBeat()
	}
	l.at = s.Now()
	if !postNow(b) {
		return false
	}
	s.Counts.WordReads.Add(1)
	l.b = b
	return true
}

// came takes what was READ, handled at a time on the lease clock.
func (l *leg) came(cell []byte, at int64) {
	c, err := layout.ParseCell(cell)
	l.word, l.holds = c.Word, err == nil && l.s.Lease.Holds(l.grant, at)
}

// settle waits for the READ of a leg, for a while.
func (l *leg) settle(p *base.Limit) {
	if l.b == nil {
		return
	}
	b := l.b
	l.b = nil
	came, mine := awaitCells(l.s, b, l.at, p)
	if came {
		l.came(b.Bytes(0), b.Handled())
	}
	if mine {
		b.Release()
	}
}

// awaitCells waits for READs of cells that were posted at a time, for a while. came: they are there; mine: b is the caller's still.
func awaitCells(s *session.Session, b *session.Reads, posted int64, p *base.Limit) (came, mine bool) {
	within := *p
	if !b.Look() {
		patience := min(max(time.Duration(s.Now()-posted), wordPatience), maxWordPatience)
		ctx, cancel := context.WithTimeout(p.Ctx, patience)
		defer cancel()
		within.Ctx = ctx
	}
	mine, err := b.Wait(&within)
	if err != nil && p.Ctx.Err() == nil {
		s.Groups.WasSlow()
	}
	return err == nil, mine
}

// settle waits for all that is under way.
func (w *words) settle(p *base.Limit) {
	for i := range w.n {
		w.legs[i].settle(p)
	}
}

// end gives up what is under way: the memory of a READ is its session's until it is over.
func (w *words) end() {
	for i := range w.n {
		if b := w.legs[i].b; b != nil {
			w.legs[i].b = nil
			b.Leave()
		}
	}
	w.n, w.told = 0, nil
}

// wantsOwn reports whether the leader's cell is to be READ with the next READs there (R15).
func (w *words) wantsOwn() bool { return w.told != nil && !w.ownIs }

// sawOwn takes the leader's cell.
func (w *words) sawOwn(cell []byte) {
	own, err := layout.ParseCell(cell)
	w.own, w.ownIs = own, err == nil
}

// hold says whether what was READ at the leader, s, counts. Voters that have not answered, or say another term, are replaced by others. Nothing is under way
// afterwards.
func (w *words) hold(s *session.Session, p *base.Limit, stripe int) bool {
	if w.told == nil || !w.ownIs {
		w.end()
		return false
	}
	if w.own.Word != w.told.Term || w.own.Config != w.told.Config {
		s.Groups.Forget(w.of.Group(), w.told)
		w.end()
		return false
	}
	need, have := len(w.told.Voters)/2, 0
	for i := 0; i < w.n; i++ {
		l := &w.legs[i]
		l.settle(p)
		if l.holds && l.word == w.told.Term {
			have++
			continue
		}
		if l.holds && l.word > w.told.Term { // the leader was deposed, or is about to be
			s.Groups.Forget(w.of.Group(), w.told)
			w.end()
			return false
		}
		l.holds = false
	}
	for have < need {
		// A word that is lower, or did not come, says nothing: another voter's may do. Its READ is younger than the get, too.
		w.n = 0
		if !w.ask(s, stripe) {
			w.end()
			return false
		}
		if w.legs[0].settle(p); !w.legs[0].holds || w.legs[0].word > w.told.Term {
			continue
		}
		if w.legs[0].word == w.told.Term {
			have++
		}
	}
	w.n = 0
	return true
}
