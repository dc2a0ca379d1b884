package store

import (
	"context"
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/admit"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/ckpt"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/journal"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// A logSide is what of a store concerns its log. A cache has none: its reader is never asked.
//
//	open     the log is opened behind the base, and what it has behind it is dirty
//	follow   the shards are there: checkpoints know what leaves their sets
//	start    writes take room in the log; checkpoints run
//	close    the base has everything; the log ends
type logSide struct {
	journal *journal.Journal // nil: of a cache
	ckpt    *ckpt.Keeper     // with journal
	newest  *newest.Reader
	values  *tables.Values
	mark    disk.ValuesMark // of the base at the start
}

// open opens the log and reads what it has behind the base.
func (l *logSide) open(s *Store) error {
	dir, err := s.disk.LogDir()
	if err != nil {
		return err
	}
	place, err := placeOf(s.disk)
	if err != nil {
		return err
	}
	values, err := s.disk.ValueTables(min(max(s.cfg.LogBytes/4, 4<<20), 64<<20))
	if err != nil {
		return err
	}
	l.journal, err = journal.Open(journal.Config{
		Values: values, BytesFrom: s.cfg.bytesFrom,
		Dir: dir, Store: s.disk.ID(), New: s.disk.NewLog(), Place: place, Reach: s.disk.Reach(),
		Sync: log.Sync(s.cfg.Sync), Interval: s.cfg.SyncInterval, Sizes: s.cfg.logSizes(),
		Shards: s.cfg.Shards, Seed: s.mem.Seed, Results: s.dedup, Fence: s.fence, Logger: s.cfg.Logger,
	})
	if err != nil {
		return journal.Fault(err)
	}
	l.newest.Log, l.newest.Bytes, l.values = l.journal, values, values
	if l.mark, err = s.disk.ValuesMark(); err != nil {
		return err
	}
	return s.disk.Join(l.journal)
}

// placeOf is where the base stands in the log; zero: it has no position.
func placeOf(d *disk.Disk) (checkpoint.Place, error) {
	raw, err := d.Place()
	if err != nil || raw == nil {
		return checkpoint.Place{}, err
	}
	place, err := checkpoint.ParsePlace(raw)
	if err != nil {
		return place, &CorruptError{Shard: disk.StoreShard, Key: []byte("position"), Err: err}
	}
	return place, nil
}

// follow makes what brings the log into the base. Readers hold the log by it.
func (l *logSide) follow(s *Store) {
	sizes := s.cfg.logSizes()
	l.ckpt = ckpt.New(ckpt.Config{
		Log: l.journal.Log(), Stream: journal.Stream, Shards: s.shards, Base: s.disk, Facts: disk.FactNames(),
		Epoch: func() uint64 { return uint64(s.disk.Epoch()) }, Place: l.journal.Place(),
		LogBytes: sizes.Log, Segment: sizes.Segment, DirtyBytes: max(int64(s.cfg.MemoryLimit/8), 1<<20),
		Every: s.cfg.checkpoints, Life: s.life,
		Bytes: l.values, Mark: l.mark, Led: l.journal.Led, Orphans: l.mark.Table != 0 || l.values.First() > 1,
	})
	l.journal.Follow(l.ckpt)
}

// start has writes take room in the log, and checkpoints run.
func (l *logSide) start(s *Store) {
	sizes := s.cfg.logSizes()
	s.gate.With(admit.Log{
		Room: l.journal, Piece: int(sizes.CommitMost()), Large: sizes.Segment / 2, Bytes: sizes.Log,
		Left: l.ckpt.Left, Rate: l.ckpt.Rate, Want: l.ckpt.Want, Trouble: l.ckpt.Trouble,
	})
	s.life.Go(l.ckpt.Run)
}

// lastPatience bounds the checkpoint at the end. What it does not bring into the base is in
// the log for the next start.
const lastPatience = 30 * time.Second

// endRoom is room in the log for all facts that the end of a life notes.
const endRoom = 256 << 10

// close brings what the log has into the base, so that a store that was stopped is whole
// without its log, and ends it; end is nil if this is no clean stop. clean: it has become one.
//
// The facts of a clean stop need room in the log. Where there is none a checkpoint comes before them,
// too, because those that ran with the store have ended. If that finds no disk either, this
// is no clean stop: nothing is lost, and the next start reads the log, and waits for leases.
func (l *logSide) close(s *Store, end *disk.End) (clean bool, err error) {
	if end == nil {
		return false, l.journal.Close(false)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastPatience)
	defer cancel()
	if room, _ := l.journal.Log().Room(log.Facts); room < endRoom {
		if err := l.ckpt.Last(ctx); err != nil {
			s.cfg.Logger.Warn("the log is full, and its last checkpoint failed: the next start reads the log, as after a crash", "err", err)
			return false, errors.Join(s.fence.Failed(), l.journal.Close(false))
		}
	}
	if err := s.disk.MarkClean(end); err != nil {
		return false, errors.Join(err, l.journal.Close(false))
	}
	if err := l.ckpt.Last(ctx); err != nil {
		s.cfg.Logger.Warn("the last checkpoint: the next start reads the log", "err", err)
	}
	return true, l.journal.Close(true)
}
