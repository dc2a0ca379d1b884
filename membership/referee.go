package membership

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// Two nodes of one id. memberlist's list has room for one of them, and says so
// to everybody who hears of the other (NotifyConflict). What it says proves
// nothing: a node that moved leaves an old address behind, and whoever holds a
// gossip key can claim any id. So who hears of two asks both:
//
//	prove    ┌nonce┬node asked┬address to answer┬MAC┐
//	proof    ┌nonce┬statement┬MAC┐
//	verdict  ┌statement of the older┬of the younger┬seen┬MAC┐   seen: u64, microseconds since 1970
//
// A node whose secret is the cluster's and whose process lives can answer, and
// nobody else, because the nonce is new. If two lives of one node have proved
// themselves, one of them both before and after the other (atOnce), there were two
// at once: the witness says so to both and to all
// members, and the younger must not go on (ErrDuplicateID). It is the younger for
// whoever compares them, so never both end; and it needs no proof that the older
// one is still alive when it hears, because it should never have been.
const (
	kindProve   kind = 5
	kindProof   kind = 6
	kindVerdict kind = 7
)

type nonce [16]byte

type prove struct {
	nonce      nonce
	node, from string
	sum        mac
}

type proof struct {
	nonce nonce
	statement
	sum mac
}

type verdict struct {
	older, younger statement
	seen           uint64 // by the witness's clock
	sum            mac
}

func (p prove) body() []byte {
	return appendText(appendText(append([]byte{byte(kindProve)}, p.nonce[:]...), p.node), p.from)
}
func (p proof) body() []byte {
	return p.statement.append(append([]byte{byte(kindProof)}, p.nonce[:]...))
}
func (v verdict) body() []byte {
	return le.AppendUint64(v.younger.append(v.older.append([]byte{byte(kindVerdict)})), v.seen)
}
func (p prove) append(dst []byte) []byte   { return append(append(dst, p.body()...), p.sum[:]...) }
func (p proof) append(dst []byte) []byte   { return append(append(dst, p.body()...), p.sum[:]...) }
func (v verdict) append(dst []byte) []byte { return append(append(dst, v.body()...), v.sum[:]...) }

// parseClaim reads one of these three.
func parseClaim(k kind, r *reader) (any, error) {
	var n nonce
	switch k {
	case kindProve:
		copy(n[:], r.take(len(n)))
		m := prove{nonce: n, node: r.id(), from: r.addr(), sum: r.mac()}
		return m, r.done()
	case kindProof:
		copy(n[:], r.take(len(n)))
		m := proof{nonce: n, statement: r.statement(), sum: r.mac()}
		return m, r.done()
	case kindVerdict:
		m := verdict{older: r.statement(), younger: r.statement(), seen: r.u64(), sum: r.mac()}
		return m, r.done()
	}
	return nil, fmt.Errorf("%w: kind %d", errMessage, k)
}

// judgeOwn looks who else has our id.
func (m *Members) judgeOwn(c claim) {
	if c.done != nil {
		close(c.done)
		return
	}
	if m.local(c.other) {
		return
	}
	p := m.probe(c.other, c.node)
	me := m.stateSelf()
	switch {
	case p == nil:
		// It was us before we moved, or it is nobody of ours: others let us in
		// once they call it dead, if we ask again.
		if m.answers(c.other, c.node) {
			m.unproved(c.node, c.other)
		}
		signal(m.retry)
	case p.Incarnation != me.Incarnation: // it answered while we live: both do
		m.witness(me, *p)
	default: // it is us, by another address
		m.relayed(c, p)
	}
}

// judge looks which of two addresses is another node's.
func (m *Members) judge(c claim) {
	if m.ruledLately(c.node) {
		return
	}
	known := make(chan *statement, 1)
	if !m.begin() {
		return
	}
	go func() {
		defer m.wg.Done()
		known <- m.probe(c.known, c.node)
	}()
	b := m.probe(c.other, c.node)
	a := <-known
	switch {
	case a != nil && b != nil && a.Incarnation == b.Incarnation:
		m.relayed(c, a)
	case a != nil && b != nil:
		if a, b = m.atOnce(c, a, b); a != nil {
			m.witness(*a, *b)
		}
	case a == nil && m.answers(c.known, c.node):
		m.unproved(c.node, c.known)
	case b == nil && m.answers(c.other, c.node):
		m.unproved(c.node, c.other)
	}
}

// atOnce asks two lives that have proved themselves again, one after the other. A
// proof says that a life answered at some time since its question, and whoever
// passes questions on may keep one until the node has started again: then each of
// two lives has answered one, the first before the second began. So two lives
// count as alive at once only if one of them answers both before and after a proof
// of the other. It returns those two, nil if that is not so.
func (m *Members) atOnce(c claim, a, b *statement) (*statement, *statement) {
	if teeth.Off(teeth.D8AliveAtOnce) {
		return a, b
	}
	if a = m.probe(c.known, c.node); a == nil || a.Incarnation == b.Incarnation {
		return nil, nil
	}
	if again := m.probe(c.other, c.node); again == nil || again.Incarnation != b.Incarnation {
		return nil, nil
	}
	return a, b
}

// relayed notes that one life answers at two addresses: somebody passes its
// questions on, or the node has moved and is still reached at its old address.
func (m *Members) relayed(c claim, s *statement) {
	at := c.other
	if s.addr == c.other {
		at = c.known
	}
	m.stats.unproved.Add(1)
	if m.noteConflict(c.node, at, statement{}, statement{}, true) {
		m.say(event{kind: sayTwin, msg: "somebody claims the id of a node and passes our questions on to it, or the node has moved and is still reached at its old address; the claim is not believed",
			args: []any{"node", c.node, "claimed at", at, "answers itself at", s.addr}})
	}
}

// probe asks who is at an address to prove that he is a node of ours, and
// returns what he says of his life; nil if he does not.
func (m *Members) probe(addr, node string) *statement {
	to, ok := m.reachable(addr, node)
	if !ok {
		return nil
	}
	var n nonce
	rand.Read(n[:]) // never fails
	answer := make(chan *statement, 1)
	m.mu.Lock()
	m.probes[n] = answer
	from := m.self.Gossip
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.probes, n)
		m.mu.Unlock()
	}()
	ask := prove{nonce: n, node: node, from: from}
	ask.sum = m.sign(ask.body())
	limit := time.NewTimer(m.time.prove)
	defer limit.Stop()
	for again := time.Duration(0); ; again = m.time.prove / 4 { // a message may be lost
		select {
		case <-time.After(again):
			m.post(sending{to, func() []byte { return ask.append(nil) }})
		case s := <-answer:
			if s.node != node {
				return nil
			}
			return s
		case <-limit.C:
			return nil
		case <-m.ctx.Done():
			return nil
		}
	}
}

// reachable is a member at an address that gossip is allowed with.
func (m *Members) reachable(addr, node string) (memberlist.Node, bool) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil || !m.door.allowed(net.UDPAddrFromAddrPort(ap)) {
		return memberlist.Node{}, false
	}
	return memberlist.Node{Name: node, Addr: ap.Addr().AsSlice(), Port: ap.Port()}, true
}

// answers reports whether a member of that name gossips at an address.
func (m *Members) answers(addr, node string) bool {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return false
	}
	for range 4 { // a packet may be lost
		if m.ctx.Err() != nil {
			return false
		}
		if _, err := m.list.Ping(node, net.UDPAddrFromAddrPort(ap)); err == nil {
			return true
		}
	}
	return false
}

// answerProve proves who we are to whoever asks for us and knows the secret.
func (m *Members) answerProve(q prove) {
	if q.node != m.cfg.NodeID {
		return
	}
	to, ok := m.reachable(q.from, q.node)
	if !ok || !m.signed(q.body(), q.sum) {
		m.stats.unproved.Add(1)
		return
	}
	a := proof{nonce: q.nonce, statement: m.stateSelf()}
	a.sum = m.sign(a.body())
	m.post(sending{to, func() []byte { return a.append(nil) }})
}

// takeProof hands a proof to who has asked for it.
func (m *Members) takeProof(p proof) {
	m.mu.Lock()
	answer := m.probes[p.nonce]
	m.mu.Unlock()
	if answer == nil || !m.signed(p.body(), p.sum) || !m.genuine(&p.statement) {
		m.stats.unproved.Add(1) // or it comes too late
		return
	}
	select {
	case answer <- &p.statement:
	default: // the second answer to a question that was sent twice
	}
}

// witness tells everybody that two lives of a node were alive at once.
func (m *Members) witness(a, b statement) {
	if b.olderThan(a.Life) {
		a, b = b, a
	}
	v := verdict{older: a, younger: b, seen: uint64(time.Now().UnixMicro())}
	v.sum = m.sign(v.body())
	for _, s := range []statement{a, b} {
		if to, ok := m.reachable(s.addr, s.node); ok && !m.local(s.addr) {
			m.post(sending{to, func() []byte { return v.append(nil) }})
		}
	}
	m.rule(v, true)
}

// takeVerdict handles the word of a witness.
func (m *Members) takeVerdict(v verdict) {
	if v.older.node != v.younger.node || !v.older.olderThan(v.younger.Life) ||
		!m.signed(v.body(), v.sum) || !m.genuine(&v.older) || !m.genuine(&v.younger) {
		m.stats.unproved.Add(1)
		return
	}
	if m.rule(v, false) {
		m.hurry(v.append(nil))
	}
}

// rule obeys a verdict and notes it. It reports whether it is news, which is then
// gossiped. What we have witnessed ourselves is news even if the younger of the
// two has said goodbye. Whoever overheard a verdict can send it again: a life that
// it names ends however old it is, because lives do not come again; the others take
// it as news only as long as it would be told of anyway.
func (m *Members) rule(v verdict, witnessed bool) bool {
	m.obey(v)
	age := time.Since(time.UnixMicro(int64(v.seen))).Abs() // of clocks of two machines
	if !witnessed && age > conflictShown || !m.noteConflict(v.older.node, "", v.older, v.younger, witnessed) {
		return false
	}
	m.say(event{kind: sayTwin, msg: "two nodes of one id are alive: the one that began later stands down", args: []any{
		"node", v.older.node, "stays", v.older.addr, "stands down", v.younger.addr}})
	m.broadcast("verdict "+v.older.node, v.append(nil))
	return true
}

// obey ends this node's part if it is the younger of two.
func (m *Members) obey(v verdict) {
	err := &StandDown{ErrDuplicateID, v.older.Life, fmt.Sprintf("%s is alive at %s (life %016x) and at %s (life %016x), which began later and must not go on: give it a node_id and a data_dir of its own",
		v.older.node, v.older.addr, v.older.Incarnation, v.younger.addr, v.younger.Incarnation)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !teeth.Off(teeth.D8YoungerEnds) && v.younger.node == m.cfg.NodeID && v.younger.Incarnation == m.self.Incarnation {
		m.failLocked(err)
	}
}

// unproved notes that somebody claims a node's id who does not know the secret.
func (m *Members) unproved(node, addr string) {
	m.stats.unproved.Add(1)
	if m.noteConflict(node, addr, statement{}, statement{}, true) {
		m.say(event{kind: sayTwin, msg: "somebody claims the id of a node and does not prove the cluster's secret: he holds a gossip key, or runs with another secret; he is not believed",
			args: []any{"node", node, "at", addr}})
	}
}

// Settled returns a channel that is closed once this node knows whether it may
// serve as far as the first seed can tell: one has answered and what it said of
// our id is judged, or every seed has been tried in vain, or there is none. Look
// at Failed, too.
func (m *Members) Settled() <-chan struct{} { return m.settled }

// settle closes Settled when what has come in so far is handled.
func (m *Members) settle(ctx context.Context) {
	done := make(chan struct{})
	for _, next := range []func() bool{
		func() bool { return send(ctx, m.inbox, message{done: done}) },
		func() bool { return send(ctx, m.twin, claim{done: done}) },
	} {
		done = make(chan struct{})
		if !next() {
			return
		}
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
	close(m.settled)
}

func send[T any](ctx context.Context, c chan<- T, x T) bool {
	select {
	case c <- x:
		return true
	case <-ctx.Done():
		return false
	}
}
