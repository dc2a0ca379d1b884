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
//	┌kind┬level┬ 0 ┬life┬stamp┬map version┬meta┬map┐
//	└1   ┴1    ┴6  ┴8   ┴8    ┴8          ┴8   ┴… ┘    life, stamp: see echo; meta: cluster.Map.Life of the map; map: cluster.AppendMap, of that version; none: the node is thought to have it
//
// level: the feature level of the cluster. Programs that know no levels ask with a 0 there, and refuse a poll with anything else; they are in no cluster above level 0. A level is
// no news: a node that has not heard of it looks whether the meta group has agreed on it (level.go), and takes nothing of the poll until it has.
//
// The answer is a seat.Report as JSON. Fields of it are only ever added. A node that has a map of that version notes since when it is known to be the newest one. One that has an
// older map, and was sent none, says so by its report, and is sent the map next time.
//
// Whoever has the cluster's secret can send a poll, and a map with it. Nodes of a cluster trust each other so far: a node that means harm could as well vote twice. What a node that is merely
// late, deposed or cut off sends does no harm, because a map counts by its version and the seat's word by its echo. So a poll names no term of the seat, and none is refused for its term:
// if a node kept the highest term that it heard, one message with a high one would make it deaf to each later seat.

const (
	kindPoll = wire.QuestionPoll
	pollHead = 40
)

// A poll is what the seat asks a node.
type poll struct {
	of      echo
	level   feature.Level
	version uint64       // of the map
	life    uint64       // of its meta group
	m       *cluster.Map // nil: there is none in it
}

// An echo is what a node has said in its last report, of its own clock, and what the seat says to it again: what the poll says of the map was true at a moment after that
// report, because the seat had it before it asked a majority for the meta group's state. The zero echo: the seat has no report of the node.
type echo struct {
	life  uint64        // seat.Report.Life
	stamp time.Duration // seat.Report.Stamp
}

// appendPoll appends a question; send: with the map.
func appendPoll(dst []byte, of echo, level feature.Level, m *cluster.Map, send bool) []byte {
	dst = append(dst, kindPoll, byte(level), 0, 0, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, of.life)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(of.stamp))
	dst = binary.LittleEndian.AppendUint64(dst, m.Version)
	dst = binary.LittleEndian.AppendUint64(dst, m.Life())
	if send {
		dst = cluster.AppendMap(dst, m)
	}
	return dst
}

// parsePoll reads it.
func parsePoll(b []byte) (q poll, err error) {
	if len(b) < pollHead || b[0] != kindPoll {
		return q, fmt.Errorf("%w: a question of %d bytes, of a kind that this node does not know", cluster.ErrMalformed, len(b))
	}
	for _, x := range b[2:8] {
		if x != 0 {
			return q, fmt.Errorf("%w: a reserved byte of a question is %#x", cluster.ErrMalformed, x)
		}
	}
	q.level = feature.Level(b[1])
	q.of = echo{binary.LittleEndian.Uint64(b[8:]), time.Duration(binary.LittleEndian.Uint64(b[16:]))}
	q.version, q.life = binary.LittleEndian.Uint64(b[24:]), binary.LittleEndian.Uint64(b[32:])
	if len(b) == pollHead {
		return q, nil
	}
	q.m, err = cluster.ParseMap(b[pollHead:])
	if err == nil && (q.m.Version != q.version || q.m.Life() != q.life) {
		err = fmt.Errorf("%w: a map of version %d and meta group %016x, said to be of version %d and %016x", cluster.ErrMalformed, q.m.Version, q.m.Life(), q.version, q.life)
	}
	return q, err
}

// Answer answers what another node asks.
func (c *Changer) Answer(ctx context.Context, node string, question []byte) ([]byte, error) {
	switch {
	case len(question) > 0 && question[0] == kindMap:
		return c.tell(question)
	case len(question) > 0 && question[0] == kindAnew:
		return promise(c, node, question)
	case len(question) > 0 && question[0] == kindLevel:
		return believer{c}.tells(question)
	}
	q, err := parsePoll(question)
	if err != nil {
		return nil, err
	}
	if now := c.now.Load(); now != nil && now.m.Parts(q.version, q.life) {
		met(c, node, q.life)
		return json.Marshal(c.report(now)) // by which the seat sees that it is another one
	}
	r, err := c.polled(ctx, node, q)
	if now := c.now.Load(); errors.Is(err, cluster.ErrTwoMetas) && now != nil {
		met(c, node, q.life)
		r, err = c.report(now), nil
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// polled takes a poll of a node in, and reports. What the level allows to be written counts before anything else of it.
func (c *Changer) polled(ctx context.Context, node string, q poll) (r seat.Report, err error) {
	if err := (believer{c}).told(ctx, node, q.level); err != nil { // first: a poll whose level is not believed leaves nothing
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
		c.heard(q.of)
	}
	return c.report(now), nil
}

// freshFor is for how long a leader goes by a map that was the newest. The seat polls once in pollIdle, takes up to pollTime for nodes that do not answer, and
// echoes what it was told a poll before, so a map is known again to be the newest when 2*(pollIdle+pollTime) have passed, at most.
const freshFor = 5 * time.Second

// heard notes that the map here was the newest one at a moment after a report of this node. A report of an earlier life, or of a moment that has not come, says nothing:
// the clock of each life begins at 0.
func (c *Changer) heard(of echo) {
	if of.life == c.life && of.stamp > 0 && of.stamp <= time.Since(c.begun) {
		c.newestAt(of.stamp)
	}
}

// newestAt notes that the map here was the newest one behind a moment, by time.Since(begun).
func (c *Changer) newestAt(at time.Duration) {
	for {
		was := c.fresh.Load()
		if int64(at) <= was || c.fresh.CompareAndSwap(was, int64(at)) {
			return
		}
	}
}

// isFresh says whether a map, or one before it, is known to have been the newest lately, and behind a moment, by time.Since(begun). A map that is in force no more is not
// fresh: what is known may be about the one that has taken its place.
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
	r := seat.Report{
		Map: now.m.Version, MetaLife: now.m.Life(), Life: c.life, Stamp: time.Since(c.begun), Groups: []seat.GroupReport{}, Kept: c.env.Kept(), Reads: &reads, Hold: c.env.Levels.Hold,
	}
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
			Group: g.ID, Replica: uint64(st.ID), Leads: st.Leads, Term: st.Term, Config: st.Config.Index, Shown: st.Applied, Last: st.Last, LastTerm: st.LastTerm, Away: seat.Away(&st),
		}
		if !st.Leads && st.Leader != st.ID {
			one.Heard = uint64(st.Leader)
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
