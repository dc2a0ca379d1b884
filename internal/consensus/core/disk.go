package core

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/log"
)

// Storage is where a replica's entries and promises are.
type Storage = raft.Storage

// A Disk is a replica's stream of the node's log, as the library reads it. Its newest
// entries are in memory, too, from the moment on when they are handed out to be appended.
// It is not safe for concurrent use, but for Add.
type Disk struct {
	log    *log.Log
	stream uint64
	state  consensus.State // as the machine has published

	cache []*pb.Entry // the newest entries, without gaps
	bytes int64       // that they take, about
	keep  int64
}

// NewDisk returns a replica's stream. state is the machine's; keep bounds the bytes of
// entries that stay in memory.
func NewDisk(l *log.Log, stream uint64, state consensus.State, keep int64) *Disk {
	return &Disk{log: l, stream: stream, state: state, keep: keep}
}

// Create gives a replica that never was its log: it begins behind the state that the
// group starts from, or with nothing (state.Applied 0), until it adopts a snapshot. It is
// durable when Create returns. A log that is as Create has left it is left so: whoever was interrupted behind Create
// calls it again. One that was in use since is an error, because it has promises in it.
func Create(l *log.Log, stream uint64, id consensus.ReplicaID, state consensus.State) error {
	begin := log.State{Term: max(state.Term, 1), Commit: state.Applied}
	if s, ok := l.State(stream); ok {
		if s == begin && unused(l, stream, id, &state) {
			return nil
		}
		return fmt.Errorf("consensus: stream %d of the log is in use already", stream)
	}
	f := l.Begin()
	err := f.AddState(stream, begin)
	if err == nil {
		err = f.AddFact(stream, factReplica, binary.LittleEndian.AppendUint64(nil, uint64(id)))
	}
	if err == nil && state.Applied > 0 {
		err = f.AddBegin(stream, state.Applied, state.Term)
	}
	if err != nil {
		f.Drop()
		return err
	}
	return WriteAll(f)
}

// unused says whether a stream that has promised nothing is a replica's, and has no entry behind a state.
func unused(l *log.Log, stream uint64, id consensus.ReplicaID, state *consensus.State) bool {
	b, ok := l.Fact(stream, factReplica)
	if !ok || len(b) != 8 || binary.LittleEndian.Uint64(b) != uint64(id) {
		return false
	}
	term, err := l.Term(stream, state.Applied)
	_, last := l.Entries(stream)
	return last == state.Applied && (state.Applied == 0 || err == nil && term == state.Term)
}

// Facts of a replica's stream, beside what it has promised. Each is of numbers of 64 bits,
// little endian.
const (
	factReplica  = 1 // whose log it is
	factAdopting = 2 // index and term of the snapshot that the machine adopted last, or was about to
)

// Reconcile compares a replica's log with what its machine has, before it starts: where a
// crash came between the machine's Adopt of a snapshot and the log's record of it, the log
// begins behind the snapshot now. ErrNoLog: there is no log, or it is another replica's, or
// entries are gone that the machine needs, or that it has and nothing else explains: the log
// was set back, and has forgotten what it promised.
func Reconcile(l *log.Log, stream uint64, id consensus.ReplicaID, state consensus.State) error {
	s, ok := l.State(stream)
	if !ok {
		return consensus.ErrNoLog
	}
	if b, ok := l.Fact(stream, factReplica); !ok || len(b) != 8 || binary.LittleEndian.Uint64(b) != uint64(id) {
		return fmt.Errorf("%w: it is the log of another replica than %d", consensus.ErrNoLog, id)
	}
	first, _ := l.Entries(stream)
	if first > state.Applied+1 {
		return fmt.Errorf("%w: the machine has entries up to %d, and the log begins at %d", consensus.ErrNoLog, state.Applied, first)
	}
	switch term, err := l.Term(stream, state.Applied); {
	case state.Applied == 0, err == nil && term == state.Term:
		return nil
	case err != nil && !errors.Is(err, log.ErrNoEntry):
		return err
	}
	b, _ := l.Fact(stream, factAdopting)
	if len(b) != 16 || binary.LittleEndian.Uint64(b) != state.Applied || binary.LittleEndian.Uint64(b[8:]) != state.Term {
		return fmt.Errorf("%w: the machine is at entry %d of term %d, which the log does not have: was it set back?", consensus.ErrNoLog, state.Applied, state.Term)
	}
	f := l.Begin()
	err := f.AddBegin(stream, state.Applied, state.Term)
	if err == nil {
		if s.Term < state.Term {
			s = log.State{Term: state.Term, Commit: s.Commit}
		}
		s.Commit = max(s.Commit, state.Applied)
		err = f.AddState(stream, s)
	}
	if err != nil {
		f.Drop()
		return err
	}
	return WriteAll(f)
}

// WriteAll takes a frame all the way: what it holds is durable when WriteAll returns nil.
func WriteAll(f *log.Frame) error {
	if err := f.Seal(); err != nil {
		f.Drop()
		return err
	}
	err := f.Write()
	if err == nil {
		err = f.Turn()
	}
	f.Pass()
	return err
}

// InitialState is of the interface raft.Storage, like all down to Snapshot.
func (d *Disk) InitialState() (*pb.HardState, *pb.ConfState, error) {
	s, ok := d.log.State(d.stream)
	if !ok {
		return nil, nil, consensus.ErrNoLog
	}
	commit := max(s.Commit, d.state.Applied)
	return &pb.HardState{Term: &s.Term, Vote: &s.Vote, Commit: &commit}, confState(&d.state.Config), nil
}

func confState(c *consensus.Config) *pb.ConfState {
	cs := &pb.ConfState{}
	for _, m := range c.Voters {
		cs.Voters = append(cs.Voters, uint64(m.ID))
	}
	for _, m := range c.Learners {
		cs.Learners = append(cs.Learners, uint64(m.ID))
	}
	return cs
}

// FirstIndex returns the index of the oldest entry that is not trimmed.
func (d *Disk) FirstIndex() (uint64, error) {
	first, _ := d.log.Entries(d.stream)
	return first, nil
}

// LastIndex returns the index of the newest entry.
func (d *Disk) LastIndex() (uint64, error) {
	_, last := d.log.Entries(d.stream)
	return last, nil
}

// Term returns the term of an entry.
func (d *Disk) Term(i uint64) (uint64, error) {
	if n := len(d.cache); n > 0 && i >= d.cache[0].GetIndex() && i-d.cache[0].GetIndex() < uint64(n) {
		return d.cache[i-d.cache[0].GetIndex()].GetTerm(), nil
	}
	t, err := d.log.Term(d.stream, i)
	return t, translate(err)
}

// translate gives the library the errors that it knows.
func translate(err error) error {
	switch {
	case errors.Is(err, log.ErrTrimmed):
		return raft.ErrCompacted
	case errors.Is(err, log.ErrNoEntry):
		return raft.ErrUnavailable
	}
	return err
}

// Entries returns the entries from lo to hi, without hi: at least one, and no more when
// they exceed so many bytes.
func (d *Disk) Entries(lo, hi, most uint64) ([]*pb.Entry, error) {
	if len(d.cache) > 0 && lo >= d.cache[0].GetIndex() {
		return limit(d.cached(lo, hi), most), nil
	}
	records, err := d.log.ReadEntries(d.stream, lo, min(hi, lo+maxTogether), int64(min(most, 1<<40)))
	if err != nil {
		return nil, translate(err)
	}
	entries := make([]*pb.Entry, len(records))
	for i := range records {
		if entries[i], err = parse(&records[i]); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

func (d *Disk) cached(lo, hi uint64) []*pb.Entry {
	first := d.cache[0].GetIndex()
	return d.cache[lo-first : min(hi-first, uint64(len(d.cache)))]
}

// maxTogether bounds the entries that are handed out together: small ones cost more than
// their bytes.
const maxTogether = 1 << 13

// limit returns the first entries, at least one, of at most so many bytes of data.
func limit(entries []*pb.Entry, most uint64) []*pb.Entry {
	sum := uint64(0)
	for i, e := range entries {
		if sum += uint64(len(e.GetData())); i > 0 && (sum > most || i == maxTogether) {
			return entries[:i:i]
		}
	}
	return entries[:len(entries):len(entries)]
}

// parse makes an entry of a record.
func parse(r *log.Record) (*pb.Entry, error) {
	e := &pb.Entry{Term: &r.Term, Index: &r.Index, Type: pb.EntryNormal.Enum()}
	kind, data, err := consensus.ParseBody(r.Body)
	if err != nil {
		return nil, fmt.Errorf("entry %d of stream %d: %w", r.Index, r.Stream, err)
	}
	if e.Data = data; kind == consensus.Change {
		e.Type = pb.EntryConfChangeV2.Enum()
	}
	return e, nil
}

// Snapshot tells what a snapshot of the machine would be of: no entries but those that are
// published (R8). The data travels by itself.
func (d *Disk) Snapshot() (*pb.Snapshot, error) {
	return metadata(&d.state), nil
}

func metadata(s *consensus.State) *pb.Snapshot {
	index, term := s.Applied, s.Term
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: &index, Term: &term, ConfState: confState(&s.Config)}}
}

// Published tells up to where the machine has published.
func (d *Disk) Published(index, term uint64, c *consensus.Config) {
	d.state.Applied, d.state.Term = index, term
	if c != nil {
		d.state.Config = *c
	}
}

// Parts cuts an append into what fits frames of so many bytes. Each part has the state; it
// never tells of a commit index behind the part's last entry, because a start would find
// that impossible, and never of less than came with its entries (R22). Only the last part
// is what Replica.Appended gets.
func (a *Append) Parts(most int64) []*Append {
	if a.Bytes() <= most || len(a.Entries) < 2 {
		return []*Append{a}
	}
	var parts []*Append
	rest := a.Entries
	for len(rest) > 0 {
		p := &Append{State: a.State, HasState: a.HasState}
		n, sum := 0, int64(stateBytes)
		for n < len(rest) && (n == 0 || sum+entryBytes(rest[n]) <= most) {
			sum += entryBytes(rest[n])
			n++
		}
		p.Entries = rest[:n]
		if rest = rest[n:]; len(rest) > 0 {
			p.State.Commit = min(p.State.Commit, p.Entries[n-1].GetIndex())
		}
		parts = append(parts, p)
	}
	parts[0].Snapshot, parts[len(parts)-1].Trim = a.Snapshot, a.Trim
	return parts
}

// EntryMost is how large an entry may be whose append fits a frame that takes so many bytes.
func EntryMost(frame int64) int64 { return min(consensus.MaxEntry, frame-recordHead-stateBytes) }

// EntryBytes bounds what an entry with so many bytes of data takes in a frame.
func EntryBytes(data int) int64 { return int64(data) + recordHead }

// Bytes bounds what an append takes in a frame.
func (a *Append) Bytes() int64 {
	sum := int64(stateBytes)
	for _, e := range a.Entries {
		sum += entryBytes(e)
	}
	return sum
}

func entryBytes(e *pb.Entry) int64 { return EntryBytes(len(e.GetData())) }

// recordHead bounds what a record takes beside its data.
const (
	recordHead = 96
	stateBytes = 5 * recordHead // a state, a trim, where the stream begins, what is adopted
)

// Taken notes an append that was handed out, in the order in which they were.
func (d *Disk) Taken(a *Append) {
	if a.Snapshot != nil {
		d.cache, d.bytes = nil, 0
	}
	d.remember(a.Entries)
	k := 0
	for k < len(d.cache) && d.cache[k].GetIndex() <= a.Trim {
		d.drop(k)
		k++
	}
	d.cache = d.cache[k:]
}

// Add adds what an append holds to a frame. It may be called beside all other functions of
// the Disk, by one goroutine at a time.
func (d *Disk) Add(f *log.Frame, a *Append) error {
	if a.Snapshot != nil {
		m := a.Snapshot.GetMetadata()
		if err := f.AddBegin(d.stream, m.GetIndex(), m.GetTerm()); err != nil {
			return err
		}
	}
	for _, e := range a.Entries {
		kind := consensus.Write
		switch {
		case e.GetType() == pb.EntryConfChangeV2:
			kind = consensus.Change
		case e.GetType() != pb.EntryNormal:
			return fmt.Errorf("consensus: entry %d of a kind that nobody proposes: %v", e.GetIndex(), e.GetType())
		case len(e.GetData()) == 0:
			kind = consensus.Empty
		}
		n := consensus.BodySize(kind, len(e.GetData()))
		b, err := f.Add(&log.Record{Kind: log.Entry, Stream: d.stream, Index: e.GetIndex(), Term: e.GetTerm()}, n)
		if err != nil {
			return err
		}
		if n > 0 {
			consensus.PutBody(b, kind, e.GetData())
		}
	}
	if a.HasState {
		if err := f.AddState(d.stream, a.State); err != nil {
			return err
		}
	}
	if a.Adopting != nil {
		b := binary.LittleEndian.AppendUint64(nil, a.Adopting.Index)
		if err := f.AddFact(d.stream, factAdopting, binary.LittleEndian.AppendUint64(b, a.Adopting.Term)); err != nil {
			return err
		}
	}
	if a.Trim > 0 {
		return f.AddTrim(d.stream, a.Trim)
	}
	return nil
}

// InMemory is the index of the oldest entry that is in memory, without a gap behind it.
func (d *Disk) InMemory() uint64 {
	if len(d.cache) == 0 {
		return ^uint64(0)
	}
	return d.cache[0].GetIndex()
}

// remember keeps entries in memory, in the place of those that they replace.
func (d *Disk) remember(entries []*pb.Entry) {
	if len(entries) == 0 {
		return
	}
	first := entries[0].GetIndex()
	for len(d.cache) > 0 && d.cache[len(d.cache)-1].GetIndex() >= first {
		d.drop(len(d.cache) - 1)
		d.cache = d.cache[:len(d.cache)-1]
	}
	for _, e := range entries {
		d.cache = append(d.cache, e)
		d.bytes += entryBytes(e)
	}
	k := 0
	for k < len(d.cache)-1 && d.bytes > d.keep {
		d.drop(k)
		k++
	}
	d.cache = d.cache[k:]
}

func (d *Disk) drop(i int) {
	d.bytes -= entryBytes(d.cache[i])
}
