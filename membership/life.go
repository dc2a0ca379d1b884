package membership

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A Life is one start of a node on its data directory. It tells two processes of
// one node id apart, and an old copy of a directory from the directory.
type Life struct {
	Store       [16]byte // of the data directory; a copy of it has the same
	Incarnation uint64   // random, new at each start; Config.Self has it
	Epoch       uint64   // of the versions that it gives out, higher at each start; 0: a cache, whose versions are never given out again
	// Began is when it started, in microseconds since 1970. In one data directory
	// each start is later than the one before, whatever the clock says; so a copy
	// that is started has begun after the directory that it was copied from.
	Began uint64
}

// olderThan is a total order of lives. It is the same on every node that compares
// two.
func (a Life) olderThan(b Life) bool {
	return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Incarnation, b.Incarnation)) < 0
}

// Errors that end a node's part in the cluster: see Failed.
var (
	ErrDuplicateID = errors.New("membership: another node of the cluster has our node id")
	ErrRolledBack  = errors.New("membership: this node's data directory is an older copy")
)

// A StandDown is what Err returns: why this node must not go on, in one line, and
// the other life that proves it. errors.Is finds Cause.
type StandDown struct {
	Cause error // ErrDuplicateID or ErrRolledBack
	Other Life
	text  string
}

func (e *StandDown) Error() string { return e.Cause.Error() + ": " + e.text }
func (e *StandDown) Unwrap() error { return e.Cause }

// A statement is what a node says of its life, under the secret of the cluster
// (Config.ProofKey). A gossip key alone cannot make one.
//
//	┌store┬incarnation┬epoch┬began┬node┬gossip address┬MAC┐
//	└16   ┴8          ┴8    ┴8    ┴1+n ┴1+n           ┴16 ┘
type statement struct {
	Life
	node, addr string
	sum        mac
}

// A mac is the first half of an HMAC-SHA256.
type mac [16]byte

// maxGossipAddr bounds HOST:PORT of gossip, where HOST is an IP.
const maxGossipAddr = 64

// stateTag separates a statement from messages, which begin with their kind.
const stateTag = 0xF1

func (s *statement) body(dst []byte) []byte {
	dst = append(dst, s.Store[:]...)
	for _, v := range [...]uint64{s.Incarnation, s.Epoch, s.Began} {
		dst = le.AppendUint64(dst, v)
	}
	return appendText(appendText(dst, s.node), s.addr)
}

func (s *statement) append(dst []byte) []byte { return append(s.body(dst), s.sum[:]...) }

func (r *reader) statement() (s statement) {
	copy(s.Store[:], r.take(len(s.Store)))
	s.Incarnation, s.Epoch, s.Began = r.u64(), r.u64(), r.u64()
	s.node, s.addr, s.sum = r.id(), r.addr(), r.mac()
	return s
}

func (r *reader) mac() (m mac) {
	copy(m[:], r.take(len(m)))
	return m
}

// addr reads an address, which will stand in logs.
func (r *reader) addr() string {
	s := string(r.take(int(r.u8())))
	if len(s) > maxGossipAddr || s != clean(s) {
		r.bad = true
	}
	return s
}

// A proofKey is the secret of the cluster, by which nodes prove their identity.
type proofKey []byte

// sign returns the MAC of bytes.
func (k proofKey) sign(body []byte) (out mac) {
	h := hmac.New(sha256.New, k)
	h.Write([]byte("rdmakv membership"))
	h.Write(body)
	copy(out[:], h.Sum(nil))
	return out
}

func (k proofKey) signed(body []byte, sum mac) bool {
	want := k.sign(body)
	return hmac.Equal(want[:], sum[:])
}

func (k proofKey) genuine(s *statement) bool { return k.signed(s.body([]byte{stateTag}), s.sum) }

// stateSelf is what this node says of its own life.
func (r *referee) stateSelf() statement {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	return r.stateSelfLocked()
}

func (r *referee) stateSelfLocked() statement {
	s := statement{Life: r.m.cfg.Life, node: r.m.cfg.NodeID, addr: r.m.self.Gossip}
	s.Incarnation = r.m.self.Incarnation
	s.sum = r.key.sign(s.body([]byte{stateTag}))
	return s
}

// learnLife handles a statement that came with a push/pull of from. The statement
// of a node about itself counts only once gossip has let that life in, because a
// second copy of a node, which is not let in, must not make the first one look
// rolled back. Until then it waits at the peer, because a node states its life when it
// joins, mostly before gossip has let it in, and the next push/pull may be half a minute
// away: a life that ends before would never have been heard of.
func (r *referee) learnLife(s *statement, from string) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if last := r.lives[s.node]; last != nil && last.sum == s.sum {
		return
	}
	if !r.key.genuine(s) {
		r.m.stats.unproved.Add(1)
		return
	}
	if p := r.m.peers[from]; s.node == from && p != nil && p.Incarnation != s.Incarnation {
		if r.laterLocked(s) {
			p.stated.add(s)
		}
		return
	}
	r.letInLocked(s)
}

// stated are the last two lives that a node id has stated and that gossip has not let in.
// Two, because beside a node that starts again a second copy of it may state its own: if
// that took the only place, the node's life would be lost when it is let in.
type stated [2]*statement

func (w *stated) add(s *statement) {
	if w[0] == nil || w[0].Incarnation != s.Incarnation {
		w[1] = w[0]
	}
	w[0] = s
}

// take takes out the one of an incarnation; nil: there is none.
func (w *stated) take(incarnation uint64) *statement {
	for i, s := range w {
		if s != nil && s.Incarnation == incarnation {
			w[i] = nil
			return s
		}
	}
	return nil
}

// laterLocked says whether a life would count, had gossip let it in: it is later than the
// one that is known. Statements of earlier lives stay genuine for ever, and anyone with
// the gossip key may send them again.
func (r *referee) laterLocked(s *statement) bool {
	last := r.lives[s.node]
	return last == nil || last.Store == s.Store && s.Epoch > last.Epoch || last.Store != s.Store && s.Began > last.Began
}

// letInLocked handles a genuine statement of a life that gossip has let in.
func (r *referee) letInLocked(s *statement) {
	switch {
	case s.node == r.m.cfg.NodeID:
		r.rolledBackLocked(s)
	case r.lives[s.node] == nil && len(r.lives) >= cluster.MaxNodes && r.m.peers[s.node] == nil:
		r.m.stats.dropped.Add(1)
	case r.laterLocked(s):
		r.lives[s.node] = s
	}
}

// rolledBackLocked compares this life with another life of this node that another
// node has seen. If the other was first, its epoch is lower. If not, this
// directory is a copy from before it, and versions that the other life gave out
// would be given out again.
func (r *referee) rolledBackLocked(s *statement) {
	me := r.m.cfg.Life
	me.Incarnation = r.m.self.Incarnation
	if me.Epoch == 0 || s.Store != me.Store || s.Incarnation == me.Incarnation || s.Epoch < me.Epoch || !s.olderThan(me) {
		return
	}
	r.m.fault.setLocked(&StandDown{ErrRolledBack, s.Life, fmt.Sprintf("the cluster has seen epoch %d of node %s, and this start is epoch %d, so its disk was rolled back and lacks what was acknowledged since; "+
		"to go on without that, start it once with --accept-rollback %d, which the others do not accept of a node with replicas", s.Epoch, s.node, me.Epoch, s.Epoch)})
}
