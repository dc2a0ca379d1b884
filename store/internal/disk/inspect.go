package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// InspectOptions say what Inspect looks at.
type InspectOptions struct {
	FS     vfs.FS // default: the machine's
	Prefix []byte // only keys that start with this
	// Each is called for every key, shard by shard, in order; its arguments
	// are good during the call. An error ends the inspection. May be nil.
	Each func(InspectEntry) error
	// MaxProblems bounds Inspection.Problems. Default 100.
	MaxProblems int
	// Tail opens the log of a store that has one of its own. The store sets it.
	Tail OpenTail
}

// InspectEntry is one record on the disk.
type InspectEntry struct {
	Shard   uint16
	Key     []byte
	Version layout.Version
	Value   []byte
	DiskLen int // bytes of keys and records before compression
}

// Inspection is what a store on the disk holds.
type Inspection struct {
	Dir       string
	ID        [16]byte
	Format    uint32
	Shards    int
	Epoch     uint16
	CleanStop bool   // the last server ended cleanly
	Backup    bool   // a backup that was made while its store served: it has no clean stop, and wants none
	Source    []byte // of a store that was restored and never started: the id of the one whose backup it was; else nil
	Ledger    bool   // the files were compared with the ledger
	Log       bool   // it has a log of its own, and what that says behind the base is counted
	// Replicas are the replicas of groups that the store has. What they have in the log alone is not counted, because it may not
	// be agreed on.
	Replicas []Replica

	// Spare is how many values stand in the base to which no record leads. They take room alone,
	// and there should be none.
	Spare int

	Keys      uint64
	KeyBytes  uint64
	Bytes     uint64 // of values
	Newest    layout.Version
	ShardKeys []uint64

	// Problems are the damages found: CorruptErrors, at most MaxProblems.
	Problems     []error
	ProblemCount int

	noted tally // values in tables that records note
}

// A tally is a set of values in tables, of which it knows how many they are, and a sum of hashes.
type tally struct {
	n   int
	sum uint64
}

func (t *tally) add(table uint64, number uint32) {
	t.n++
	t.sum += xxh3.Hash(AppendBytesKey(nil, table, number))
}

// Inspect opens the stopped store in dir without changing it, and reads all of
// it: every record's checksum, every key's form. Damage of records and files
// is listed in the Inspection; the error says what kept Inspect from looking,
// as from Open (ErrNoStore, ErrLocked, ...), or what Each returned.
func Inspect(ctx context.Context, dir string, opt InspectOptions) (Inspection, error) {
	c := Config{Dir: dir, FS: opt.FS}.WithDefaults()
	opt.MaxProblems = cmp.Or(opt.MaxProblems, 100)
	in := Inspection{Dir: dir}
	lock, id, _, err := enterDir(c, false)
	if err != nil {
		return in, err
	}
	defer lock.Close()
	in.ID, in.Format, in.Shards = id.id, id.format, int(id.shards)
	in.ShardKeys = make([]uint64, in.Shards)
	var book ledgerText
	if book, in.Ledger, err = compareLedger(c); err != nil {
		in.problem(opt, err)
	}
	f := base.NewFence(c.Logger, func(error) {})
	f.Opening.Store(true)
	o := optionsOf(id, c, &events{fence: f})
	o.ReadOnly = true
	db, _, err := openPebble(c.FS.PathJoin(dir, dataDir), o, f)
	if err != nil {
		return in, openFault(dir, err)
	}
	defer db.Close()
	tail, err := openTail(ctx, c, id, db, book, opt.Tail)
	if err != nil {
		if ctx.Err() != nil {
			return in, err
		}
		many := Damages{err}
		_ = errors.As(err, &many)
		for _, err := range many {
			in.problem(opt, err)
		}
	}
	state := pebble.Reader(db)
	if tail != nil {
		defer tail.Close()
		over, err := in.over(ctx, db, tail, opt)
		if over != nil {
			defer over.Close()
			state = over
		}
		if err != nil {
			return in, err
		}
	}
	if err := in.facts(state, tail, id, book, opt); err != nil {
		return in, err
	}
	blobs, err := compareBlobs(db, c)
	if err != nil {
		return in, openFault(dir, err)
	}
	for _, fault := range blobs {
		in.problem(opt, fault)
	}
	for shard := range in.Shards {
		if err := in.shard(ctx, state, uint16(shard), opt); err != nil {
			return in, err
		}
		if err := in.others(ctx, state, uint16(shard), opt); err != nil {
			return in, err
		}
	}
	return in, in.strays(state, opt)
}

// over returns the base with the tail of the log over it. What keeps the tail from being
// read is a problem, and then the base is looked at alone: nil. The error is that of ctx.
func (in *Inspection) over(ctx context.Context, db *pebble.DB, tail Tail, opt InspectOptions) (*pebble.Batch, error) {
	batch := db.NewIndexedBatch()
	err := tail.Write(ctx, &overlay{batch: batch, most: maxOverlay})
	if err == nil {
		in.Log = true
		return batch, nil
	}
	_ = batch.Close() // it is dropped
	if ctx.Err() != nil {
		return nil, err
	}
	in.problem(opt, err)
	return nil, nil
}

// facts reads what the store says about itself, and compares it with STORE and ledger.
func (in *Inspection) facts(state pebble.Reader, tail Tail, id identity, book ledgerText, opt InspectOptions) error {
	f, err := factsBehind(state, tail)
	if err != nil {
		in.problem(opt, err)
	}
	in.Epoch, in.CleanStop, in.Source = f.epoch, f.clean != nil, f.source
	if in.Replicas, err = replicasIn(state); err != nil {
		in.problem(opt, err)
	}
	switch {
	case tail != nil:
		_, in.CleanStop = tail.Found()
	case id.format >= logFormat:
		// What the base says is of the life before its first log.
		in.CleanStop = id.unlogged && id.clean
	}
	// Only a clean stop and a backup write a ledger of all files.
	in.Backup = in.Ledger && book.state == ledgerWhole && !in.CleanStop && in.Source == nil
	if id.format < logFormat {
		if err := book.compareBeat(f.beats); err != nil {
			in.problem(opt, err)
		}
	}
	// An upgrade that was cut short is in STORE and not in the data yet.
	upgrading := f.format < id.format && (id.format < logFormat || id.unlogged || f.format >= logFormat)
	if f.id != id.id || f.shards != id.shards || f.format != id.format && !upgrading {
		in.problem(opt, &base.CorruptError{File: dataDir, Detail: identityFile + " and the data say different things about the store"})
	}
	return nil
}

// grouped says whether a shard has replicas.
func (in *Inspection) grouped(shard uint16) bool {
	return slices.ContainsFunc(in.Replicas, func(r Replica) bool { return slices.Contains(r.Shards, shard) })
}

// Check is Inspect for those who only want to know whether all is well: it
// returns the problems as the error, joined.
func Check(ctx context.Context, dir string, opt InspectOptions) (Inspection, error) {
	in, err := Inspect(ctx, dir, opt)
	if err == nil && in.ProblemCount > 0 {
		err = &base.OpenError{Dir: dir, Err: errors.Join(in.Problems...)}
	}
	return in, err
}

// problem notes a damage.
func (in *Inspection) problem(opt InspectOptions, err error) {
	if in.ProblemCount++; len(in.Problems) < opt.MaxProblems {
		in.Problems = append(in.Problems, err)
	}
}

// shard reads the data of one shard.
func (in *Inspection) shard(ctx context.Context, state pebble.Reader, shard uint16, opt InspectOptions) (err error) {
	grouped := in.grouped(shard)
	lower, upper := PrefixBounds(shard, opt.Prefix)
	iter, err := recordsOf(state, lower, upper)
	if err != nil {
		in.fileProblem(opt, shard, err)
		return nil
	}
	defer func() { err = errors.Join(err, ignoreCorrupt(iter.Close())) }()
	for iter.First(); iter.Valid(); iter.Next() {
		if in.Keys%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		_, _, key, _ := ParseKey(iter.Key())
		rec, damage, err := iter.Whole()
		if err != nil {
			in.fileProblem(opt, shard, err)
			return nil
		}
		in.Keys++
		in.ShardKeys[shard]++
		if _, note, ok := iter.Noted(); ok && note.Table != 0 {
			in.noted.add(note.Table, note.Number)
		}
		in.KeyBytes += uint64(len(key))
		if damage != nil {
			in.problem(opt, damage)
			continue
		}
		in.Bytes += uint64(len(rec.Value))
		if !grouped { // else the version is a number of the group
			in.Newest = max(in.Newest, rec.Version)
		}
		if rec.Version.Epoch() > in.Epoch && !grouped {
			in.problem(opt, &base.CorruptError{Shard: shard, Key: bytes.Clone(key),
				Detail: fmt.Sprintf("version %v is of an epoch that has not begun (newest: %d)", rec.Version, in.Epoch)})
		}
		if missing, err := unlisted(state, shard, key, rec.Expiry); err != nil {
			in.fileProblem(opt, shard, err)
		} else if missing {
			in.problem(opt, &base.CorruptError{Shard: shard, Key: bytes.Clone(key), Detail: "it expires, and is not listed as such"})
		}
		if opt.Each != nil {
			err = opt.Each(InspectEntry{Shard: shard, Key: key, Version: rec.Version, Value: rec.Value, DiskLen: iter.diskLen(rec)})
			if err != nil {
				return err
			}
		}
	}
	// A damaged block looks like the end; only this tells.
	if err := iter.Error(); err != nil {
		in.fileProblem(opt, shard, err)
	}
	return nil
}

// strays looks for keys where none should be.
func (in *Inspection) strays(state pebble.Reader, opt InspectOptions) (err error) {
	if len(opt.Prefix) > 0 {
		return nil
	}
	lower := AppendKey(nil, uint16(in.Shards), 0, nil)
	iter, err := recordsOf(state, lower, nil)
	if err != nil {
		in.fileProblem(opt, StoreShard, err)
		return nil
	}
	defer func() { err = errors.Join(err, ignoreCorrupt(iter.Close())) }()
	raw, err := getMeta(state, metaValues)
	if err != nil {
		in.problem(opt, err)
	}
	mark, err := ParseValuesMark(raw)
	if err != nil {
		in.problem(opt, err)
	}
	var there tally
	for iter.First(); iter.Valid(); iter.Next() {
		if table, number, ok := parseBytesKey(iter.Key()); ok && Kind(iter.Key()[2]) == KindBytes {
			// Those behind the mark are of writes that the log has, or of none.
			if iter.Key()[len(iter.Key())-1] == 0 && !mark.lists(table, number) {
				there.add(table, number)
			}
			continue
		}
		if shard, k, _, ok := ParseKey(iter.Key()); !ok || shard != StoreShard || k != KindMeta {
			in.problem(opt, &base.CorruptError{Detail: fmt.Sprintf("key %x belongs to no shard", iter.Key())})
		}
	}
	if err := iter.Error(); err != nil {
		in.fileProblem(opt, StoreShard, err)
	}
	if in.Spare = there.n - in.noted.n; in.Spare == 0 && there.sum != in.noted.sum && in.ProblemCount == 0 {
		in.Spare = 1 // at least; as many are missing, which the records tell
	}
	return nil
}

// fileProblem notes an error of Pebble's while it read a shard.
func (in *Inspection) fileProblem(opt InspectOptions, shard uint16, err error) {
	fault := pebbleCorrupt(err)
	fault.Shard, fault.Detail = shard, fmt.Sprintf("shard %d cannot be read to its end: %s", shard, fault.Detail)
	in.problem(opt, fault)
}

// ignoreCorrupt drops an error that was noted as a problem already.
func ignoreCorrupt(err error) error {
	if pebble.IsCorruptionError(err) {
		return nil
	}
	return err
}
