package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	groupentry "github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/log"
)

// What replicated groups have ordered stands in the log as entries, each group's in a stream of
// its own. An entry is in the log before it is committed, and another may take its place, so
// positions do not say what is published. A checkpoint takes the entries of a group by
// their index, up to the newest that its replica has published:
//
//	entries of a group   ... | applied in the base + 1  ...  published here | not committed, perhaps
//	                           \_______________ Range ______________________/
//
// Which of them count the base's own state says, as a replica's does (entry.Turn). Behind the
// checkpoint the base has the state up to there in the same ingest as what it came to, so the
// engine applies what follows again after a crash, and nothing twice; and the log needs the
// entries no more (R6).

// A Group is a replicated group of which a checkpoint takes entries in.
type Group struct {
	ID     consensus.GroupID
	Stream uint64
	From   groupentry.State // of the base
	To     uint64           // the newest entry that is published
	// Configs are the configurations that were applied behind From, in their order.
	Configs []consensus.Config
}

// behind says whether the base lacks entries of a group.
func (g *Group) behind() bool { return g.To > g.From.Applied }

const groupName = "group."

// GroupKey is the key of Pebble under which the state of a group stands.
func GroupKey(id consensus.GroupID) []byte {
	return strconv.AppendUint(disk.AppendKey(nil, disk.StoreShard, disk.KindMeta, []byte(groupName)), uint64(id), 10)
}

// A Named tells records of kind meta; disk.Disk is one, and so is a disk.Snapshot.
type Named interface {
	Named(key []byte) ([]byte, error)
}

// StateOf returns where a base stands in a group that it has.
func StateOf(b Named, id consensus.GroupID) (s groupentry.State, err error) {
	key := GroupKey(id)
	value, err := b.Named(key)
	if err == nil && value == nil {
		err = errors.New("it is not there")
	}
	if err == nil {
		s, err = groupentry.ParseState(value)
	}
	if err != nil {
		return s, &base.CorruptError{Shard: disk.StoreShard, Key: key, Err: err}
	}
	return s, nil
}

// SetState adds where the base stands in a group to an ingest, behind everything else that it has.
func SetState(to interface{ Set(key, value []byte) error }, id consensus.GroupID, s *groupentry.State) error {
	key, value := GroupKey(id), groupentry.AppendState(nil, s)
	rec := make([]byte, disk.RecordSize(len(value), false))
	disk.PutRecord(rec, key, disk.Record{Value: value})
	return to.Set(key, rec)
}

// Found adds to an ingest which replica of a group the store is, the stream of the log that it has (0: the first of the group), and the state that it starts
// from. The base has everything that the state says: nothing, because a group that begins has no key; or, where begins is not nil, what begins says, which the base has
// already. Nothing else is in the ingest.
func Found(to Sink, id consensus.GroupID, self consensus.ReplicaID, stream uint64, s *groupentry.State, begins *disk.GroupBase) error {
	r := disk.Replica{Group: uint32(id), ID: uint64(self), Shards: s.Shards, Stream: stream}
	if begins != nil { // in the order of the keys
		if err := to.Set(r.BaseRecord(begins)); err != nil {
			return err
		}
	}
	err := errors.Join(SetState(to, id, s), to.Set(r.Record()))
	if key, rec := r.StreamRecord(); err == nil && rec != nil {
		err = to.Set(key, rec)
	}
	return err
}

// GiveUp adds to an ingest that the store is that replica of a group no more: all that the base has of the group's shards goes, and so does what it says of
// the replica; that there was one is all that is left. shards rise. Nothing else is in the ingest.
func GiveUp(to Sink, id consensus.GroupID, self consensus.ReplicaID, shards []uint16) error {
	for _, shard := range shards {
		if err := to.DeleteRange(disk.AppendKey(nil, shard, 0, nil), disk.AppendKey(nil, shard+1, 0, nil)); err != nil {
			return err
		}
	}
	// In the order of the keys.
	r := disk.Replica{Group: uint32(id), ID: uint64(self)}
	replica, _ := r.Record()
	stream, _ := r.StreamRecord()
	begun, _ := r.BaseRecord(nil)
	return errors.Join(to.Delete(begun), to.Set(r.FormerRecord()), to.Delete(GroupKey(id)), to.Delete(replica), to.Delete(stream))
}

// Recovered adds to an ingest that the store has a replica of one group in the place of one of another, with the keys of the same shards, at a state; begins is what these keys are. Of the old one is left that there was one.
// Nothing else is in the ingest.
func Recovered(to Sink, old consensus.GroupID, former consensus.ReplicaID, id consensus.GroupID, self consensus.ReplicaID, stream uint64, s *groupentry.State, begins *disk.GroupBase) error {
	type fact struct{ key, rec []byte } // rec nil: it goes
	was := disk.Replica{Group: uint32(old), ID: uint64(former)}
	is := disk.Replica{Group: uint32(id), ID: uint64(self), Shards: s.Shards, Stream: stream}
	state := groupentry.AppendState(nil, s)
	stateRec := make([]byte, disk.RecordSize(len(state), false))
	disk.PutRecord(stateRec, GroupKey(id), disk.Record{Value: state})
	facts := []fact{{GroupKey(old), nil}, {GroupKey(id), stateRec}}
	for _, f := range []func() (key, rec []byte){was.FormerRecord, is.Record, is.StreamRecord} {
		if key, rec := f(); rec != nil {
			facts = append(facts, fact{key, rec})
		}
	}
	key, rec := is.BaseRecord(begins)
	facts = append(facts, fact{key, rec})
	gone := func() (key, rec []byte) { return was.BaseRecord(nil) }
	for _, f := range []func() (key, rec []byte){was.Record, was.StreamRecord, gone} {
		key, _ := f()
		facts = append(facts, fact{key, nil})
	}
	slices.SortFunc(facts, func(a, b fact) int { return bytes.Compare(a.key, b.key) })
	for _, f := range facts {
		err := error(nil)
		if f.rec == nil {
			err = to.Delete(f.key)
		} else {
			err = to.Set(f.key, f.rec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entriesTogether bounds the bytes of entries that are read at a time.
const entriesTogether = 1 << 20

// groups adds the entries of all groups to the range, until it is half full. What it has come
// to is in d.states, one for each group.
func (d *reader) groups(ctx context.Context, p *pace) error {
	d.states = make([]groupentry.State, len(d.c.Groups))
	for i := range d.c.Groups {
		g := &d.c.Groups[i]
		s := &d.states[i]
		*s = g.From
		if err := d.group(ctx, p, g, s); err != nil {
			return err
		}
		if s.Applied == g.From.Applied {
			continue
		}
		for _, c := range g.Configs {
			if c.Index <= s.Applied && c.Index > s.Config.Index {
				s.Config = c
			}
		}
		d.r.key = append(d.r.key[:0], GroupKey(g.ID)...)
		d.r.set(0, 0, groupentry.AppendState(nil, s))
	}
	return nil
}

// group adds the entries of a group.
func (d *reader) group(ctx context.Context, p *pace, g *Group, s *groupentry.State) error {
	var parsed []logged.Write
	for s.Applied < g.To {
		if d.r.half() {
			d.more = true
			return nil
		}
		records, err := d.c.Log.ReadEntries(g.Stream, s.Applied+1, g.To+1, entriesTogether)
		if err != nil {
			return fmt.Errorf("checkpoint: entries of group %d behind %d: %w", g.ID, s.Applied, err)
		}
		for i := range records {
			rec := &records[i]
			if i > 0 && d.r.half() {
				break
			}
			if err := p.read(ctx, len(rec.Body)); err != nil {
				return err
			}
			if parsed, err = d.r.addEntry(rec, &s.Turn, parsed); err != nil {
				return &RecordError{At: rec.Position, Err: err}
			}
			s.Applied, s.Term = rec.Index, rec.Term
		}
	}
	return nil
}

// addEntry adds an entry, if it counts. spare is used for its writes, and returned.
func (r *Range) addEntry(rec *log.Record, turn *groupentry.Turn, spare []logged.Write) ([]logged.Write, error) {
	kind, data, err := consensus.ParseBody(rec.Body)
	if err != nil || kind != consensus.Write {
		return spare, err
	}
	e, err := groupentry.Parse(data, spare)
	if err != nil {
		return spare, err
	}
	r.records++
	if turn.Take(rec.Index, &e) {
		for i := range e.Writes {
			r.addParsed(&e.Writes[i], nil)
		}
	}
	if e.Writes != nil {
		spare = e.Writes
	}
	return spare, nil
}
