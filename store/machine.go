package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/image"
	"github.com/rdmakv/rdmakv/store/internal/replica"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/internal/upkeep"
)

// A machine is what the engine drives of a replica; see consensus.Machine. What it durably has is what the base has: the
// entries behind that are in the log, and are applied again.
//
// A snapshot is the base at one moment. It is older than what is published, by as much as is behind the newest checkpoint; the log
// has the entries from there on (R6), so whoever gets the snapshot gets these, too. It holds nothing that is not
// published (R8), because checkpoints take in nothing else.
type machine struct {
	*member
	s *Store
}

var _ consensus.Machine = (*machine)(nil)

func (m *machine) State() (consensus.State, error) { return m.Replica.State().State, nil }

func (m *machine) Durable(term uint64) { m.cell.raise(term) }

// A sentImage is a snapshot that the engine reads.
type sentImage struct {
	*image.Reader
	snap  disk.Snapshot
	state consensus.State
	of    *member
}

// Read has the replica stopped that has another base than what the group began with, by the next entry that it applies: what it serves is not what its group is.
func (s *sentImage) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if errors.Is(err, image.ErrBase) {
		s.of.unlike.Store(&err)
	}
	return n, err
}

func (s *sentImage) State() consensus.State { return s.state }

func (s *sentImage) Close() error { return errors.Join(s.Reader.Close(), s.snap.Close()) }

// Apply takes entries in. A replica that has just become a member can adopt no snapshot of an older configuration, in which it is none, so the base is to
// have the configuration soon.
func (m *machine) Apply(entries []consensus.Entry) error {
	if err := m.unlike.Load(); err != nil {
		return *err
	}
	if err := m.Replica.Apply(entries); err != nil {
		return err
	}
	if e := &entries[len(entries)-1]; e.Kind == consensus.Change && e.Config != nil && len(e.Config.Learners) > 0 {
		m.reachSoon(e.Index)
	}
	return nil
}

// reachSoon has the base take in an entry, which is published. It does not wait. Only the applier calls it.
func (m *machine) reachSoon(index uint64) {
	if m.reaching.Swap(true) {
		return
	}
	m.running.Go(func() {
		defer m.reaching.Store(false)
		_ = m.s.ckpt.Reach(m.ctx, m.group, index) // if it does not, whoever needs the snapshot asks again
	})
}

// errOldBase: the base does not have the newest configuration yet. It soon will.
var errOldBase = fmt.Errorf("%w: the base does not have the group's newest configuration yet", consensus.ErrBusy)

func (m *machine) Snapshot(context.Context) (consensus.Snapshot, error) {
	snap := m.s.disk.Snapshot()
	isShort := m.s.dedup.Short() // behind the snapshot: what is forgotten from now on the entries behind it tell of
	state, err := checkpoint.StateOf(snap, m.group)
	if err != nil {
		return nil, errors.Join(err, snap.Close())
	}
	if at := m.cell.configuration(); state.Config.Index < at {
		m.reachSoon(at)
		return nil, errors.Join(errOldBase, snap.Close())
	}
	r := image.NewReader(snap, &state, isShort)
	if state.Applied == 1 {
		begins, err := disk.GroupBaseIn(snap, uint32(m.group))
		if err != nil {
			return nil, errors.Join(err, snap.Close())
		}
		if begins != nil {
			r.Begins(begins)
		}
	}
	m.s.groups.sent.Add(1)
	return &sentImage{r, snap, state.State, m.member}, nil
}

// A receivedImage is a snapshot in tables that the base does not have.
type receivedImage struct {
	in    *tables.Tables
	state entry.State
	short bool // results of requests are missing
}

func (r *receivedImage) State() consensus.State { return r.state.State }

func (r *receivedImage) Close() error { return r.in.Abort() }

func (m *machine) Receive(ctx context.Context, head consensus.State, from io.Reader) (consensus.Received, error) {
	if err := m.s.disk.Admits(false); err != nil {
		return nil, err
	}
	in, err := m.s.disk.Incoming(ctx, uint64(m.group), m.s.cfg.SnapshotRate)
	if err != nil {
		return nil, err
	}
	state, isShort, err := m.load(ctx, in, from)
	if err == nil && !same(&state.State, &head) {
		err = fmt.Errorf("%w: it is of entry %d of term %d, and was said to be of entry %d of term %d", image.ErrImage, state.Applied, state.Term, head.Applied, head.Term)
	}
	if err != nil {
		return nil, errors.Join(err, in.Abort())
	}
	return &receivedImage{in, state, isShort}, nil
}

// load writes what comes into tables.
func (m *machine) load(ctx context.Context, in *tables.Tables, from io.Reader) (entry.State, bool, error) {
	to := image.NewReplacement(in, m.found.Shards)
	state, isShort, err := image.Load(ctx, &admitted{Reader: from, disk: m.s.disk}, m.found.Shards, to)
	if err == nil {
		err = to.End()
	}
	if err == nil {
		err = checkpoint.SetState(in, m.group, &state)
	}
	if err == nil {
		err = in.Ready(ctx)
	}
	return state, isShort, err
}

// An admitted reads what comes as long as the disk has room for it: what is left is the log's and the base's.
type admitted struct {
	io.Reader
	disk *disk.Disk
	next int // bytes until it looks
}

// lookBytes is after how many bytes of a snapshot it is asked whether there is room.
const lookBytes = 64 << 10

func (a *admitted) Read(b []byte) (int, error) {
	if a.next <= 0 {
		if err := a.disk.Admits(false); err != nil {
			return 0, err
		}
		a.next = lookBytes
	}
	n, err := a.Reader.Read(b)
	a.next -= n
	return n, err
}

// same says whether two states are one.
func same(a, b *consensus.State) bool {
	return bytes.Equal(entry.AppendState(nil, &entry.State{State: *a}), entry.AppendState(nil, &entry.State{State: *b}))
}

// Adopt has the state that was received take the place of this replica's. What of it is in memory goes, and the fill brings in
// the other's; until then every miss is asked. A reader that has read a header of before believes it for a lease, which is waited for.
func (m *machine) Adopt(r consensus.Received) error {
	got, ok := r.(*receivedImage)
	if !ok {
		return fmt.Errorf("store: a snapshot that was received elsewhere: %T", r)
	}
	m.Forget()
	for _, id := range m.found.Shards {
		m.cleared(m.s, m.s.shards[id].Unfill())
	}
	if err := m.waitLease(m.s.groups.ctx, m.s); err != nil {
		return err
	}
	for _, id := range m.found.Shards {
		m.s.shards[id].Clear()
	}
	if got.short { // a retry of what was forgotten must not be taken for new (R4)
		m.s.dedup.WasShort()
		noteShort(m.s)
	}
	err := m.s.ckpt.Replace(m.s.groups.ctx, m.group, got.state, func() error {
		// What the tables have to wait for comes before the locks.
		if err := got.in.Ready(m.s.groups.ctx); err != nil {
			return err
		}
		return m.s.journal.Change(&m.s.ckpt.Leaving, func() error { return m.replace(got) })
	})
	if err != nil {
		return err
	}
	for _, id := range m.found.Shards {
		// A retry of what the state has is answered by it before this replica can lead (R4).
		if err := upkeep.LoadResultsOf(m.s.disk, id, m.s.dedup); err != nil {
			return err
		}
		m.s.shards[id].Relist(0)
		m.s.filler.Again(m.s.shards[id])
	}
	m.s.parts.Forget(m.found.Shards)
	m.s.Events.restart(m.found.Shards, got.state.Turn.Newest(0))
	m.Installed(got.state)
	m.s.groups.received.Add(1)
	return nil
}

// cleared notes that the replica's memory is about to be cleared; wait: a reader may have believed a miss, which counts for a lease.
func (m *member) cleared(s *Store, wait bool) {
	if wait {
		m.clear = time.Now().Add(s.cfg.predecessorWait())
	}
}

// waitLease returns when the replica's memory may be cleared, with ErrClosed when ctx ends, or with why the store is fenced. It may be called again.
func (m *member) waitLease(ctx context.Context, s *Store) error {
	left := time.Until(m.clear)
	if left <= 0 {
		return nil
	}
	lease := time.NewTimer(left)
	defer lease.Stop()
	select {
	case <-lease.C:
		return nil
	case <-ctx.Done():
		return ErrClosed
	case <-s.fence.Down:
		return s.fence.Failed()
	}
}

// replace brings the state into the base, and takes what was here out of memory.
func (m *machine) replace(got *receivedImage) error {
	if _, err := got.in.Commit(m.s.groups.ctx); err != nil {
		return err
	}
	for _, id := range m.found.Shards {
		shard.Empty(m.s.shards[id], got.state.Turn.Newest(id), &replica.NotLeaderError{Group: m.group})
	}
	return nil
}

// noteShort makes durable that results were forgotten before their time. If the log has no room for that, the forgetter tries again.
func noteShort(s *Store) {
	if err := s.disk.NoteShort(s.dedup.Short); err != nil && !s.life.Over() {
		s.fence.Report(slog.LevelWarn, "the mark that results of requests were forgotten early", "err", err)
	}
}
