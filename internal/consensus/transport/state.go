package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// The head of a snapshot, the body of an offer. Numbers are little endian:
//
//	┌address┬rkey┬pieces┬group┬ 0 ┬from┬to┬term┬applied┬its term┬config┬voters┬learners┐
//	└8      ┴4   ┴4     ┴4    ┴4  ┴8   ┴8 ┴8   ┴8      ┴8       ┴8     ┴2     ┴2       ┘
//	┌id┬length┬node┐  each voter, each learner
//	└8 ┴2     ┴…   ┘
//
// Address and rkey name the pieces, one behind the other.
type offer struct {
	remote rdma.RemoteAddr
	pieces uint32
	head   consensus.SnapshotHead
}

var le = binary.LittleEndian

func (o *offer) append(b []byte) []byte {
	h := &o.head
	b = le.AppendUint64(b, o.remote.Addr)
	b = le.AppendUint32(b, o.remote.RKey)
	b = le.AppendUint32(b, o.pieces)
	b = le.AppendUint32(b, uint32(h.Group))
	b = le.AppendUint32(b, 0)
	for _, v := range [...]uint64{uint64(h.From), uint64(h.To), h.Term, h.State.Applied, h.State.Term, h.State.Config.Index} {
		b = le.AppendUint64(b, v)
	}
	c := &h.State.Config
	b = le.AppendUint16(b, uint16(len(c.Voters)))
	b = le.AppendUint16(b, uint16(len(c.Learners)))
	for _, list := range [2][]consensus.Member{c.Voters, c.Learners} {
		for _, m := range list {
			b = le.AppendUint64(b, uint64(m.ID))
			b = le.AppendUint16(b, uint16(len(m.Node)))
			b = append(b, m.Node...)
		}
	}
	return b
}

// parseOffer reads an offer. What the head says is the Endpoint's to judge.
func parseOffer(b []byte) (o offer, err error) {
	r := bytes.NewReader(b)
	var fixed struct {
		Addr                                         uint64
		RKey, Pieces, Group, Zero                    uint32
		From, To, Term, Applied, AppliedTerm, Config uint64
		Voters, Learners                             uint16
	}
	if err := binary.Read(r, le, &fixed); err != nil || fixed.Zero != 0 || fixed.Pieces == 0 || fixed.Pieces > 64 ||
		fixed.Voters > consensus.MaxMembers || fixed.Learners > consensus.MaxMembers {
		return o, fmt.Errorf("%w: an offer of %d bytes", errProtocol, len(b))
	}
	o = offer{
		remote: rdma.RemoteAddr{Addr: fixed.Addr, RKey: fixed.RKey}, pieces: fixed.Pieces,
		head: consensus.SnapshotHead{
			Group: consensus.GroupID(fixed.Group), From: consensus.ReplicaID(fixed.From), To: consensus.ReplicaID(fixed.To), Term: fixed.Term,
			State: consensus.State{Applied: fixed.Applied, Term: fixed.AppliedTerm, Config: consensus.Config{Index: fixed.Config}},
		},
	}
	c := &o.head.State.Config
	for i := range int(fixed.Voters) + int(fixed.Learners) {
		var m struct {
			ID  uint64
			Len uint16
		}
		if err := binary.Read(r, le, &m); err != nil || int(m.Len) > r.Len() || m.Len > wire.MaxName {
			return o, fmt.Errorf("%w: member %d of an offer", errProtocol, i)
		}
		name := make([]byte, m.Len)
		r.Read(name)
		member := consensus.Member{ID: consensus.ReplicaID(m.ID), Node: string(name)}
		if i < int(fixed.Voters) {
			c.Voters = append(c.Voters, member)
		} else {
			c.Learners = append(c.Learners, member)
		}
	}
	if r.Len() != 0 {
		return o, fmt.Errorf("%w: %d bytes behind an offer", errProtocol, r.Len())
	}
	return o, nil
}

// What came of a snapshot, the value of an end.
var outcomes = []error{
	nil,
	errors.New("transport: the other node did not take the snapshot"), // for a reason of its own
	consensus.ErrBusy, consensus.ErrNotTaken, consensus.ErrNoGroup, consensus.ErrMessage, consensus.ErrClosed, consensus.ErrFenced, consensus.ErrSlow,
}

func outcome(err error) uint32 {
	for i, o := range outcomes {
		if i != 1 && (o == nil && err == nil || o != nil && errors.Is(err, o)) {
			return uint32(i)
		}
	}
	return 1
}

// patience is for how long the ends of a snapshot wait for each other.
const patience = 30 * time.Second

// Snapshot implements consensus.Link: the other node READs the data out of this one's memory,
// piece by piece.
func (t *Transport) Snapshot(ctx context.Context, node string, h consensus.SnapshotHead, data io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	t.mu.Lock()
	if t.ctx.Err() != nil {
		t.mu.Unlock()
		return consensus.ErrClosed
	}
	t.running.Add(1)
	t.mu.Unlock()
	defer t.running.Done()
	e, _, err := t.dial(ctx, outKey{node, wire.LaneState})
	if err != nil {
		return err
	}
	defer e.close()
	o := offer{remote: rdma.RemoteAddr{Addr: e.mr.Addr() + uint64(e.restOff()), RKey: e.mr.RKey()}, pieces: pieces, head: h}
	if err := e.say(ctx, message{kind: kindOffer, value: pieceBytes, body: o.append(nil)}); err != nil {
		return err
	}
	return e.offerPieces(ctx, data)
}

// offerPieces fills pieces as they are free, until the other node says that it is over.
func (e *end) offerPieces(ctx context.Context, data io.Reader) error {
	filled, taken, last := 0, 0, false
	for {
		for !last && filled-taken < pieces {
			i := filled % pieces
			n, err := io.ReadFull(data, e.rest()[i*pieceBytes:(i+1)*pieceBytes])
			if last = err == io.EOF || err == io.ErrUnexpectedEOF; err != nil && !last {
				return err // the other node hears that the way has ended
			}
			if err := e.say(ctx, message{kind: kindPiece, last: last, value: uint32(n)}); err != nil {
				return err
			}
			filled++
		}
		wait, cancel := context.WithTimeout(ctx, patience)
		m, slot, err := e.hear(wait)
		cancel()
		if err != nil {
			return err
		}
		switch {
		case m.kind == kindTaken && taken < filled:
			taken++
		case m.kind == kindEnd && int(m.value) < len(outcomes):
			if err := outcomes[m.value]; err != nil {
				return fmt.Errorf("%w (%s)", err, clean(m.body))
			}
			return nil
		default:
			return fmt.Errorf("%w: a message of kind %d", errProtocol, m.kind)
		}
		if err := e.recv(slot); err != nil {
			return err
		}
	}
}

// clean makes a text of what another node says.
func clean(b []byte) string {
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, b[:min(len(b), 200)]))
}

// takeState takes a snapshot that a node offers.
func (t *Transport) takeState(node string, e *end) error {
	ctx := t.ctx
	wait, stop := context.WithTimeout(ctx, patience)
	m, slot, err := e.hear(wait)
	stop()
	if err != nil {
		return err
	}
	if m.kind != kindOffer || m.value != pieceBytes {
		return fmt.Errorf("%w: a message of kind %d for an offer", errProtocol, m.kind)
	}
	o, err := parseOffer(m.body)
	if err != nil {
		return err
	}
	if err := e.recv(slot); err != nil {
		return err
	}
	r := newPieceReader(ctx, e, o, t.c.Rate)
	there, gone := context.WithCancel(ctx)
	defer gone()
	go func() { // who waits for a place reads nothing, and would not hear that the other node has given up
		select {
		case <-e.qp.Done():
			gone()
		case <-there.Done():
		}
	}()
	err = t.c.Endpoint.Receive(there, node, o.head, r)
	r.end()
	slow := errors.Is(r.err, consensus.ErrSlow)
	if slow {
		err = r.err
	} else if r.err != nil && r.err != io.EOF {
		return r.err
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	wait, stop = context.WithTimeout(ctx, SetupTimeout)
	defer stop()
	if err := e.say(wait, message{kind: kindEnd, value: outcome(err), body: []byte(text[:min(len(text), 200)])}); err != nil {
		return err
	}
	// The other node ends the way when it has heard.
	for heard := error(nil); heard == nil; {
		if _, slot, heard = e.hear(wait); heard == nil {
			heard = e.recv(slot)
		}
	}
	if slow {
		return err
	}
	return nil
}
