package membership

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A wanted is a table that we miss, and how far we are with getting it.
// Guarded by mu.
type wanted struct {
	version uint64    // at least this one
	teller  string    // who said so, "" if the node itself did
	next    time.Time // not asked for before
	asked   bool      // an answer is awaited, until next
	tries   int

	got part // of the table that is coming in: its bytes so far
}

// Bounds of fetching.
const (
	maxAsked = 16 // tables asked for at once
	maxTries = 8  // then the next push/pull or advert must tell of it again
)

// A sending is a message for the reliable channel.
type sending struct {
	to    memberlist.Node
	bytes func() []byte // made when it is sent: 64 waiting parts would be 64 MiB
}

// senders is how many goroutines send: a peer that does not take its message
// does not stop the others.
const senders = 4

// sender sends messages, each over a connection of its own.
func (m *Members) sender() {
	defer m.wg.Done()
	for {
		select {
		case s := <-m.out:
			if m.list.SendReliable(&s.to, s.bytes()) == nil {
				m.stats.parts.Add(1)
			}
		case <-m.ctx.Done():
			return
		}
	}
}

func (m *Members) post(s sending) bool {
	select {
	case m.out <- s:
		return true
	default:
		m.stats.dropped.Add(1)
		return false
	}
}

// viewEvery is the least time between two views: a burst of news, as when many
// nodes come, makes one. A view of a thousand members is a quarter of a megabyte.
const viewEvery = 20 * time.Millisecond

// run is the goroutine that handles what came in, and asks for what is
// missing.
func (m *Members) run() {
	defer m.wg.Done()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	housekeeping := time.Now()
	var looked time.Time       // when the members were looked at last
	var later <-chan time.Time // set while another look is due
	look := func() {
		later, looked = nil, time.Now()
		m.compare()
		m.publishView()
	}
	for {
		select {
		case <-m.ctx.Done():
			return
		case msg := <-m.inbox:
			m.inboxSize.Add(-int64(len(msg.bytes)))
			m.handle(msg)
		case <-m.dirty:
			if wait := viewEvery - time.Since(looked); wait <= 0 {
				look()
			} else if later == nil {
				later = time.After(wait)
			}
		case <-later:
			look()
		case now := <-tick.C:
			m.ask(now)
			if now.Sub(housekeeping) > time.Second {
				housekeeping = now
				m.publishView() // suspicions and the gone expire
			}
		}
	}
}

func (m *Members) handle(msg message) {
	if msg.done != nil {
		close(msg.done)
		return
	}
	if msg.state {
		s, err := parseState(msg.bytes)
		if err != nil {
			m.bad(err)
			return
		}
		m.merge(s)
		return
	}
	x, err := parseMessage(msg.bytes)
	if err != nil {
		m.bad(err)
		return
	}
	switch x := x.(type) {
	case *cluster.Delta:
		m.advert(x, msg.bytes)
	case goodbye:
		m.bye(x, msg.bytes)
	case want:
		m.give(x)
	case part:
		m.take(x)
	case prove:
		m.answerProve(x)
	case proof:
		m.takeProof(x)
	case verdict:
		m.takeVerdict(x)
	}
}

func (m *Members) bad(err error) {
	m.stats.malformed.Add(1)
	m.say(event{kind: sayBad, msg: "gossip: a malformed message of a member is ignored", args: []any{"err", err}})
}

// compare notes which tables are not what the metadata of their nodes says.
func (m *Members) compare() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.peers {
		if p.want == nil && m.needsLocked(p) {
			// In a large cluster everybody misses it at once: spread out.
			grace := m.time.grace + time.Duration(rand.Int64N(int64(m.time.grace)*(1+m.count.Load()/100)))
			m.wantLocked(p, p.TableVersion, "", grace)
		}
	}
}

// ask asks for tables whose time has come.
func (m *Members) ask(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := 0
	for _, p := range m.peers {
		if p.want != nil && p.want.asked && now.Before(p.want.next) {
			asked++
		}
	}
	for id, p := range m.peers {
		w := p.want
		switch {
		case w == nil || now.Before(w.next):
			continue
		case p.table != nil && p.table.version >= w.version && !m.needsLocked(p), p.State == cluster.Dead, p.State == cluster.Left:
			p.want = nil
			continue
		case w.tries >= maxTries:
			p.want = nil
			continue
		case asked >= maxAsked:
			return
		}
		to := m.sourceLocked(p)
		w.tries++
		w.got = part{}
		if to == nil || !m.askLocked(id, p, to, 0) {
			w.next = now.Add(m.time.request)
			continue
		}
		asked++
	}
}

func (m *Members) askLocked(id string, p *peer, to *peer, offset uint32) bool {
	w := p.want
	q := want{m.cfg.NodeID, id, p.Incarnation, offset}
	if !m.post(sending{to.node, func() []byte { return q.append(nil) }}) {
		return false
	}
	m.stats.asked.Add(1)
	w.asked, w.teller = true, to.ID
	// Longer each time, and never in step with others.
	wait := m.time.request << min(max(w.tries-1, 0), 4)
	w.next = time.Now().Add(wait/2 + rand.N(wait))
	return true
}

// sourceLocked chooses whom to ask for a table: who told of it, then the node
// itself, then anybody.
func (m *Members) sourceLocked(p *peer) *peer {
	if t := m.peers[p.want.teller]; p.want.tries == 0 && t != nil && t.State == cluster.Alive {
		return t
	}
	if p.want.tries%2 == 0 || len(m.peers) == 1 {
		return p
	}
	for _, other := range m.peers { // in random order
		if other != p && other.State == cluster.Alive {
			return other
		}
	}
	return p
}

// give answers a want, if we have what it asks for: the whole table from an
// offset on, one part.
func (m *Members) give(q want) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.own
	if q.node != m.cfg.NodeID {
		t = nil
		if p := m.peers[q.node]; p != nil {
			t = p.table
		}
	}
	to := m.peers[q.from]
	if to == nil || t == nil || t.incarnation != q.incarnation || int(q.offset) >= len(t.bytes) {
		return // it will ask somebody else
	}
	rest := t.bytes[q.offset:]
	answer := part{t.node, t.incarnation, t.version, t.digest, uint32(len(t.bytes)), q.offset, rest[:min(len(rest), maxPart)]}
	if m.post(sending{to.node, func() []byte { return answer.append(nil) }}) {
		m.stats.given.Add(1)
	}
}

// take puts a part of a table that we asked for to the parts before it.
func (m *Members) take(got part) {
	m.mu.Lock()
	p := m.peers[got.node]
	if p == nil || p.want == nil || !p.want.asked || p.Incarnation != got.incarnation {
		m.mu.Unlock()
		m.stats.old.Add(1) // not asked for, or too late
		return
	}
	w := p.want
	have := &w.got
	switch {
	case got.offset == 0:
		*have = got
	case got.offset == uint32(len(have.bytes)) && got.version == have.version && got.digest == have.digest && got.total == have.total:
		have.bytes = append(have.bytes, got.bytes...)
	default: // the table has changed between two parts: from the beginning
		*have = part{}
		w.asked, w.next = false, time.Now()
		m.mu.Unlock()
		return
	}
	if uint32(len(have.bytes)) < have.total {
		if from := m.peers[w.teller]; from == nil || !m.askLocked(got.node, p, from, uint32(len(have.bytes))) {
			w.asked, w.next = false, time.Now()
		}
		m.mu.Unlock()
		return
	}
	whole := have.bytes
	w.asked, w.got = false, part{}
	m.mu.Unlock()

	t, err := cluster.ParseTable(whole)
	if err == nil && t.Node != got.node {
		err = fmt.Errorf("%w: a table of %s, asked for was that of %s", errMessage, t.Node, got.node)
	}
	if err != nil {
		m.bad(err)
		return
	}
	if m.offer(t) {
		m.stats.got.Add(1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[got.node]; p != nil && p.want == w && p.table != nil && p.table.version >= w.version && !m.needsLocked(p) {
		p.want = nil
	}
}
