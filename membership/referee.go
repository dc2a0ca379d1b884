package membership

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// This file is about two nodes of one id. memberlist's list has room for one of
// them, and reports that on every node that receives the other (NotifyConflict). The
// report proves nothing: a node that moved leaves an old address behind, and a
// holder of a gossip key can claim any id. So a node that receives two asks both:
//
//	prove    ┌nonce┬node asked┬address to answer┬MAC┐
//	proof    ┌nonce┬statement┬MAC┐
//	verdict  ┌statement of the older┬of the younger┬seen┬MAC┐   seen: u64, microseconds since 1970
//
// Only a node that has the cluster's secret and whose process lives can answer,
// because the nonce is new. If two lives of one node have proved themselves, one of
// them both before and after the other (atOnce), then two lives were there at once.
// The witness says so to both and to all members, and the younger must not go on
// (ErrDuplicateID). Every node that compares the two finds the same one younger, so
// never both end. A verdict needs no proof that the older one is still alive when it
// arrives, because the younger should never have been.
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

// A referee judges claims to an id, keeps what nodes have proved of their lives, and
// knows this node's own. Members.mu guards its maps.
type referee struct {
	m       *Members
	key     proofKey
	twin    chan claim // another node has our id
	claims  *docket    // two have another node's id, which has proved itself
	unknown *docket    // two nodes have an id for which neither has given a proof

	lives     map[string]*statement // the newest of each node that was let in, for those that come back
	probes    map[nonce]chan *statement
	conflicts map[string]*Conflict
}

func newReferee(m *Members) *referee {
	return &referee{
		m: m, key: m.cfg.ProofKey, twin: make(chan claim, 4), claims: newDocket(cluster.MaxNodes), unknown: newDocket(maxUnknown),
		lives: map[string]*statement{}, probes: map[nonce]chan *statement{}, conflicts: map[string]*Conflict{},
	}
}

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

// judgeOwn finds out which other node has our id.
func (r *referee) judgeOwn(c claim) {
	if c.done != nil {
		close(c.done)
		return
	}
	if r.m.local(c.other) {
		return
	}
	p := r.probe(c.other, c.node)
	me := r.stateSelf()
	switch {
	case p == nil:
		// The other address was this node's before it moved, or belongs to no node of
		// this cluster.
		// Others let us in once they call it dead, if we ask again.
		if r.answers(c.other, c.node) {
			r.unproved(c.node, c.other)
		}
		signal(r.m.joiner.retry)
	case p.Incarnation != me.Incarnation: // it answered while we live: both do
		r.witness(me, *p)
	default: // it is us, by another address
		r.relayed(c, p)
	}
}

// judge looks which of two addresses is another node's.
func (r *referee) judge(c claim) {
	if r.ruledLately(c.node) {
		return
	}
	known := make(chan *statement, 1)
	if !r.m.begin() {
		return
	}
	go func() {
		defer r.m.wg.Done()
		known <- r.probe(c.known, c.node)
	}()
	b := r.probe(c.other, c.node)
	a := <-known
	switch {
	case a != nil && b != nil && a.Incarnation == b.Incarnation:
		r.relayed(c, a)
	case a != nil && b != nil:
		if a, b = r.atOnce(c, b); a != nil {
			r.witness(*a, *b)
		}
	case a == nil && r.answers(c.known, c.node):
		r.unproved(c.node, c.known)
	case b == nil && r.answers(c.other, c.node):
		r.unproved(c.node, c.other)
	}
}

// atOnce asks two lives that have proved themselves again, one after the other. A
// proof says that a life answered at some time since its question, and an attacker
// who relays questions may keep one until the node has started again: then each of
// two lives has answered one, the first before the second began. So two lives count
// as alive at once only if one of them answers both before and after a proof of the
// other. atOnce returns those two, or nil if that is not so.
func (r *referee) atOnce(c claim, b *statement) (*statement, *statement) {
	a := r.probe(c.known, c.node)
	if a == nil || a.Incarnation == b.Incarnation {
		return nil, nil
	}
	if again := r.probe(c.other, c.node); again == nil || again.Incarnation != b.Incarnation {
		return nil, nil
	}
	return a, b
}

// relayed notes that one life answers at two addresses: its questions are relayed,
// or the node has moved and is still reached at its old address.
func (r *referee) relayed(c claim, s *statement) {
	at := c.other
	if s.addr == c.other {
		at = c.known
	}
	r.m.stats.unproved.Add(1)
	if r.noteConflict(c.node, at, statement{}, statement{}, true) {
		r.m.say(event{kind: sayTwin, msg: "somebody claims the id of a node and passes our questions on to it, or the node has moved and is still reached at its old address; the claim is not believed",
			args: []any{"node", c.node, "claimed at", at, "answers itself at", s.addr}})
	}
}

// probe asks the node at an address to prove that it belongs to the cluster, and
// returns what it says of its life, or nil if it gives no proof.
func (r *referee) probe(addr, node string) *statement {
	to, ok := r.m.reachable(addr, node)
	if !ok {
		return nil
	}
	var n nonce
	rand.Read(n[:]) // never fails
	answer := make(chan *statement, 1)
	r.m.mu.Lock()
	r.probes[n] = answer
	from := r.m.self.Gossip
	r.m.mu.Unlock()
	defer func() {
		r.m.mu.Lock()
		delete(r.probes, n)
		r.m.mu.Unlock()
	}()
	ask := prove{nonce: n, node: node, from: from}
	ask.sum = r.key.sign(ask.body())
	limit := time.NewTimer(r.m.time.prove)
	defer limit.Stop()
	for again := time.Duration(0); ; again = r.m.time.prove / 4 { // a message may be lost
		select {
		case <-time.After(again):
			r.m.out.post(sending{to, ask.append(nil)})
		case s := <-answer:
			if s.node != node {
				return nil
			}
			return s
		case <-limit.C:
			return nil
		case <-r.m.ctx.Done():
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
func (r *referee) answers(addr, node string) bool {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return false
	}
	for range 4 { // a packet may be lost
		if r.m.ctx.Err() != nil {
			return false
		}
		if _, err := r.m.list.Ping(node, net.UDPAddrFromAddrPort(ap)); err == nil {
			return true
		}
	}
	return false
}

// answerProve proves our identity to a node that asks for us and knows the secret.
func (r *referee) answerProve(q prove) {
	if q.node != r.m.cfg.NodeID {
		return
	}
	to, ok := r.m.reachable(q.from, q.node)
	if !ok || !r.key.signed(q.body(), q.sum) {
		r.m.stats.unproved.Add(1)
		return
	}
	a := proof{nonce: q.nonce, statement: r.stateSelf()}
	a.sum = r.key.sign(a.body())
	r.m.out.post(sending{to, a.append(nil)})
}

// takeProof hands a proof to the goroutine that has asked for it.
func (r *referee) takeProof(p proof) {
	r.m.mu.Lock()
	answer := r.probes[p.nonce]
	r.m.mu.Unlock()
	if answer == nil || !r.key.signed(p.body(), p.sum) || !r.key.genuine(&p.statement) {
		r.m.stats.unproved.Add(1) // or it comes too late
		return
	}
	select {
	case answer <- &p.statement:
	default: // the second answer to a question that was sent twice
	}
}

// witness tells every member that two lives of a node were alive at once.
func (r *referee) witness(a, b statement) {
	if b.olderThan(a.Life) {
		a, b = b, a
	}
	v := verdict{older: a, younger: b, seen: uint64(time.Now().UnixMicro())}
	v.sum = r.key.sign(v.body())
	for _, s := range []statement{a, b} {
		if to, ok := r.m.reachable(s.addr, s.node); ok && !r.m.local(s.addr) {
			r.m.out.post(sending{to, v.append(nil)})
		}
	}
	r.rule(v, true)
}

// takeVerdict handles the word of a witness.
func (r *referee) takeVerdict(v verdict) {
	if v.older.node != v.younger.node || !v.older.olderThan(v.younger.Life) ||
		!r.key.signed(v.body(), v.sum) || !r.key.genuine(&v.older) || !r.key.genuine(&v.younger) {
		r.m.stats.unproved.Add(1)
		return
	}
	if r.rule(v, false) {
		r.m.hurry(v.append(nil))
	}
}

// rule obeys a verdict and notes it. It reports whether it is news, which is then
// gossiped. A verdict of our own is news even if the younger of the two has said
// goodbye. An attacker that has overheard a verdict can send it again. A life that
// the verdict names ends however old the verdict is, because lives do not come
// again; the other nodes take it as news only as long as they would show it anyway.
func (r *referee) rule(v verdict, witnessed bool) bool {
	r.obey(v)
	age := time.Since(time.UnixMicro(int64(v.seen))).Abs() // of clocks of two machines
	if !witnessed && age > conflictShown || !r.noteConflict(v.older.node, "", v.older, v.younger, witnessed) {
		return false
	}
	r.m.say(event{kind: sayTwin, msg: "two nodes of one id are alive: the one that began later stands down", args: []any{
		"node", v.older.node, "stays", v.older.addr, "stands down", v.younger.addr}})
	r.m.broadcast("verdict "+v.older.node, v.append(nil))
	return true
}

// obey ends this node's part if it is the younger of two.
func (r *referee) obey(v verdict) {
	err := &StandDown{ErrDuplicateID, v.older.Life, fmt.Sprintf("%s is alive at %s (life %016x) and at %s (life %016x), which began later and must not go on: give it a node_id and a data_dir of its own",
		v.older.node, v.older.addr, v.older.Incarnation, v.younger.addr, v.younger.Incarnation)}
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if v.younger.node == r.m.cfg.NodeID && v.younger.Incarnation == r.m.self.Incarnation {
		r.m.fault.setLocked(err)
	}
}

// unproved notes that a node's id is claimed by a node that does not know the
// secret.
func (r *referee) unproved(node, addr string) {
	r.m.stats.unproved.Add(1)
	if r.noteConflict(node, addr, statement{}, statement{}, true) {
		r.m.say(event{kind: sayTwin, msg: "somebody claims the id of a node and does not prove the cluster's secret: he holds a gossip key, or runs with another secret; he is not believed",
			args: []any{"node", node, "at", addr}})
	}
}
