package change

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/seat"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// The question that the seat asks every node:
//
//	┌kind┬level┬ 0 ┬term┬map version┬map┐
//	└1   ┴1    ┴6  ┴8   ┴8          ┴…  ┘    term: in which the seat leads the meta group; map: cluster.AppendMap, of that version; none: the node is thought to have it
//
// Kind 255 is another question (level.go). The kind is feature.Forms.Question of the cluster's level: 1 at level 0, as programs ask that know no levels, which refuse kind 2; 2 at the levels above.
//
// A node that has heard a seat of a later term does not answer. The level is no news: a node that has not heard of it looks whether the meta group has agreed on it (level.go),
// and takes nothing of the question until it has.
//
// The answer is a seat.Report as JSON. Fields of it are only ever added. A node that has a map of that version notes that it is the newest one. One that has an older
// map, and was sent none, says so by its report, and is sent the map next time.

const pollHead = 24

// A poll is a question.
type poll struct {
	term, version uint64
	level         feature.Level
	m             *cluster.Map // nil: there is none in it
}

// appendPoll appends a question; send: with the map.
func appendPoll(dst []byte, term uint64, level feature.Level, m *cluster.Map, send bool) []byte {
	dst = append(dst, feature.Of(level).Question, byte(level), 0, 0, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, term)
	dst = binary.LittleEndian.AppendUint64(dst, m.Version)
	if send {
		dst = cluster.AppendMap(dst, m)
	}
	return dst
}

// parsePoll reads it.
func parsePoll(b []byte) (q poll, err error) {
	if len(b) < pollHead || b[0] == 0 || b[0] > feature.Of(feature.Here().Newest).Question {
		return q, fmt.Errorf("%w: a question of %d bytes, of a kind that this node does not know", cluster.ErrMalformed, len(b))
	}
	for _, x := range b[2:8] {
		if x != 0 {
			return q, fmt.Errorf("%w: a reserved byte of a question is %#x", cluster.ErrMalformed, x)
		}
	}
	q.level = feature.Level(b[1])
	if feature.Of(q.level).Question != b[0] {
		return q, fmt.Errorf("%w: a question of kind %d and level %d", cluster.ErrMalformed, b[0], q.level)
	}
	q.term, q.version = binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	if len(b) == pollHead {
		return q, nil
	}
	q.m, err = cluster.ParseMap(b[pollHead:])
	if err == nil && q.m.Version != q.version {
		err = fmt.Errorf("%w: a map of version %d, said to be of version %d", cluster.ErrMalformed, q.m.Version, q.version)
	}
	return q, err
}

// Answer answers what another node asks.
func (c *Changer) Answer(ctx context.Context, node string, question []byte) ([]byte, error) {
	if isLevelQuestion(question) {
		return json.Marshal(c.holds())
	}
	q, err := parsePoll(question)
	if err != nil {
		return nil, err
	}
	r, err := c.polled(ctx, q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// polled takes a poll in, and reports. What the level allows to be written counts before anything else of it.
func (c *Changer) polled(ctx context.Context, q poll) (r seat.Report, err error) {
	came := time.Since(c.begun) // and not when the map is durable: a replica that has begun to lead meanwhile would take the word of before for one of now
	if err := c.bySeat(q.term, false); err != nil {
		return r, err
	}
	if err := c.told(ctx, q.level); err != nil { // before the term counts: what is not believed leaves nothing
		return r, err
	}
	if err := c.bySeat(q.term, true); err != nil {
		return r, err
	}
	if now := c.now.Load(); q.m != nil && (now == nil || now.m.Version < q.m.Version) {
		if err := c.env.Follow(ctx, q.m); err != nil {
			return r, err
		}
	}
	now := c.now.Load()
	if now == nil {
		return r, cluster.ErrNoMap
	}
	if now.m.Version == q.version {
		c.heard(came)
	}
	return c.report(now), nil
}

// bySeat returns nil if no seat of a later term has asked; note: this one has, from now on.
func (c *Changer) bySeat(term uint64, note bool) error {
	for {
		seen := c.seatTerm.Load()
		if term < seen {
			return fmt.Errorf("%w: the seat of term %d asks, and there is one of term %d", errOldSeat, term, seen)
		}
		if !note || c.seatTerm.CompareAndSwap(seen, term) {
			return nil
		}
	}
}

// errOldSeat: who asks leads the meta group no more.
var errOldSeat = errors.New("change: it is the seat no more")

// freshFor is for how long a leader goes by a map after the seat has said that it is the newest.
const freshFor = 3 * time.Second

// heard notes that the seat has said at a moment, by time.Since(begun), that the map here is the newest one.
func (c *Changer) heard(at time.Duration) {
	for {
		was := c.fresh.Load()
		if int64(at) <= was || c.fresh.CompareAndSwap(was, int64(at)) {
			return
		}
	}
}

// isFresh says whether the seat has said so lately, and since a moment, by time.Since(begun), of a map or of one before it. A map that is in force no more is not fresh:
// what the seat has said last may be about the one that has taken its place.
func (c *Changer) isFresh(now *inForce, since time.Duration) bool {
	at := time.Duration(c.fresh.Load())
	return at > since && time.Since(c.begun)-at < freshFor && c.now.Load() == now // looked at last, because a map is in force before the seat's word of it is noted
}

// groups are the groups of which the map gives this node a replica, the meta group among them.
func (f *inForce) groups(node string) (list []*cluster.DraftGroup) {
	for i := range f.d.Groups {
		if f.d.Groups[i].At(node) != nil {
			list = append(list, &f.d.Groups[i])
		}
	}
	return list
}

// report is how the node's replicas are.
func (c *Changer) report(now *inForce) seat.Report {
	reads := c.env.Levels.Reads
	r := seat.Report{Map: now.m.Version, Groups: []seat.GroupReport{}, Reads: &reads, Hold: c.env.Levels.Hold}
	for _, g := range now.groups(c.env.Node) {
		st, err := c.env.Engine().Status(consensus.GroupID(g.ID))
		if err == nil && st.Fenced != nil {
			if r.Stopped == nil {
				r.Stopped = make(map[uint32]string)
			}
			r.Stopped[g.ID] = clip(wire.CleanText([]byte(st.Fenced.Error())))
		}
		if err != nil || st.Fenced != nil {
			continue
		}
		one := seat.GroupReport{
			Group: g.ID, Replica: uint64(st.ID), Leads: st.Leads, Term: st.Term, Config: st.Config.Index, Last: st.Last, Away: seat.Away(&st),
		}
		for _, m := range st.Config.Voters {
			one.Voters = append(one.Voters, uint64(m.ID))
		}
		for _, m := range st.Config.Learners {
			one.Learns = append(one.Learns, uint64(m.ID))
		}
		if st.Leads {
			one.Match = make(map[uint64]uint64, len(st.Peers))
			for _, p := range st.Peers {
				one.Match[uint64(p.ID)] = p.Match
			}
			one.Step, one.Why = c.doingOf(g.ID)
		}
		r.Groups = append(r.Groups, one)
	}
	return r
}

// maxReport bounds a report of another node, in bytes.
const maxReport = 1 << 20

// parseReport reads the report of another node, whose every byte may be false: what it says of groups counts only as far as the map has its replicas there.
func parseReport(b []byte, node string, d *cluster.Draft) (r seat.Report, err error) {
	if len(b) > maxReport {
		return r, fmt.Errorf("%w: a report of %d bytes", cluster.ErrMalformed, len(b))
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%w: a report: %w", cluster.ErrMalformed, err)
	}
	kept := r.Groups[:0]
	for _, g := range r.Groups {
		if of := d.Group(g.Group); of != nil {
			if p := of.Replica(g.Replica); p != nil && p.Node == node {
				g.Step, g.Why = wire.CleanText([]byte(g.Step)), wire.CleanText([]byte(g.Why)) // operators are told of them
				kept = append(kept, g)
			}
		}
	}
	r.Groups = kept
	for group, why := range r.Stopped {
		r.Stopped[group] = clip(wire.CleanText([]byte(why)))
	}
	return r, nil
}

// clip bounds a text that operators are shown.
func clip(s string) string { return s[:min(len(s), maxWhy)] }

// maxWhy is how many bytes of one are shown.
const maxWhy = 200
