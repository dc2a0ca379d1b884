package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// Open opens or creates what is on the disk, for Begin. fresh: it was created;
// locked is when the directory became ours.
func (d *Disk) Open() (fresh bool, locked time.Time, err error) {
	lock, id, fresh, err := enterDir(d.c, true)
	if err != nil {
		return false, locked, err
	}
	d.lock, d.identity = lock, id
	locked = time.Now()
	return fresh, locked, d.open(fresh)
}

// open opens the directory that was entered.
func (d *Disk) open(created bool) error {
	c, id := d.c, d.identity
	if c.Own {
		return d.Base.open(created)
	}
	found, err := d.openLedger(created)
	if err != nil {
		return err
	}
	if err := probeWrites(c.FS, c.Dir); err != nil {
		return err
	}
	d.fence.Opening.Store(true)
	o := pebbleOptions(c, d.events)
	o.FS = &stopFS{FS: &ledgerFS{FS: c.FS, ledger: d.ledger}, events: d.events, failover: c.WALFailoverDir != ""}
	d.db, d.stuck, err = openPebble(c.FS.PathJoin(c.Dir, dataDir), o, d.fence)
	if pebble.IsCorruptionError(err) {
		fault := pebbleCorrupt(err)
		if fault.File == "" && strings.Contains(fault.Detail, "WAL") {
			fault.File = logFiles(c)
		}
		return fault
	}
	if err != nil {
		return err
	}
	if created {
		if err := d.fenceable(func() error { return createWithLog(d.db, c, id) }); err != nil {
			return err
		}
	}
	if d.facts, err = readFacts(d.db); err != nil {
		return err
	}
	if err := d.facts.check(c); err != nil {
		return err
	}
	if err := d.facts.refusal(c); err != nil {
		return err
	}
	if err := found.compareBeat(d.facts.beats); err != nil {
		return err
	}
	if err := checkBlobs(d.db, c); err != nil {
		return err
	}
	if err := d.facts.belongs(id); err != nil {
		return err
	}
	d.facts.countedKeys(c.Shards)
	return nil
}

// belongs says whether Pebble is that of the store that STORE names.
func (f *facts) belongs(id identity) error {
	if f.id == id.id {
		return nil
	}
	return &base.CorruptError{File: dataDir, Detail: fmt.Sprintf("it belongs to store %s, %s says %s",
		idString(f.id), identityFile, idString(id.id))}
}

// Begin begins a new epoch, and with it the life of this opening. now is asked for
// the server's time. Open was called before.
func (d *Disk) Begin(now func() uint64) error {
	if d.c.Own {
		err := d.fenceable(func() error { return d.begin(now()) })
		if err == nil {
			d.fence.Opening.Store(false)
		}
		return err
	}
	if d.facts.format < formatVersion {
		if err := upgradeIdentity(d.c, d.identity); err != nil {
			return err
		}
	}
	if err := d.fenceable(func() error { return d.beginEpoch(now()) }); err != nil {
		return err
	}
	d.fence.Opening.Store(false)
	return nil
}

// setFirst adds the first keys of a new store to a batch.
func setFirst(b *pebble.Batch, id identity) error {
	u32 := func(vs ...uint32) (out []byte) {
		for _, v := range vs {
			out = binary.LittleEndian.AppendUint32(out, v)
		}
		return out
	}
	return errors.Join(
		setMeta(b, metaFormat, u32(id.format, id.reader)),
		setMeta(b, metaID, id.id[:]),
		setMeta(b, metaShards, u32(id.shards)),
		setMeta(b, metaHash, []byte(shardHash)),
		setMeta(b, metaEpoch, []byte{1, 0}),
	)
}

// createWithLog writes the first keys of a new store whose log is Pebble's.
func createWithLog(db *pebble.DB, c Config, id identity) error {
	b := db.NewBatch()
	defer b.Close()
	err := setFirst(b, id)
	if err == nil {
		err = b.Commit(pebble.Sync)
	}
	// The first log of a new Pebble store is written in an old format, in
	// which a flipped byte silently ends the replay: 90 % of fsynced writes
	// were lost that way. A flush turns to a second log, in the new format,
	// in which the same flip is found.
	if err == nil {
		err = db.Flush()
	}
	if err == nil {
		err = finishCreation(c)
	}
	return err
}

// beginEpoch raises the epoch durably, so that no version of an earlier
// opening is given out again, whatever a crash took, and removes the
// clean-stop mark: from here on there may be memory that somebody reads.
func (d *Disk) beginEpoch(now uint64) error {
	if err := d.nextEpoch(now); err != nil {
		return err
	}
	return d.writeEpoch()
}

// nextEpoch settles the epoch and the time of this opening.
func (d *Disk) nextEpoch(now uint64) error {
	if d.facts.epoch == math.MaxUint16 {
		return &base.OpenError{Dir: d.c.Dir, Err: base.ErrEpochs}
	}
	d.foundEpoch = d.facts.epoch
	if above := d.c.EpochAbove; d.facts.epoch <= above && above != 0 {
		if int(above)+EpochsPerRestore > 1<<16-2 {
			return &base.OpenError{Dir: d.c.Dir, Err: base.ErrEpochs}
		}
		d.facts.epoch = above + EpochsPerRestore
	}
	d.facts.epoch++
	d.facts.began = max(now, d.facts.began+1)
	return nil
}

// writeEpoch writes down where Pebble has the log.
func (d *Disk) writeEpoch() error {
	b := d.db.NewBatch()
	defer b.Close()
	err := errors.Join(
		setMeta(b, metaEpoch, binary.LittleEndian.AppendUint16(nil, d.facts.epoch)),
		setMeta(b, metaBegan, binary.LittleEndian.AppendUint64(nil, d.facts.began)))
	if err != nil {
		return err
	}
	if err := b.Delete(metaKey(metaClean), nil); err != nil {
		return err
	}
	if d.facts.refused != nil {
		if err := b.Delete(metaKey(metaRefused), nil); err != nil {
			return err
		}
	}
	if d.facts.source != nil {
		if err := b.Delete(metaKey(metaRestored), nil); err != nil {
			return err
		}
	}
	if d.facts.format < formatVersion {
		format := binary.LittleEndian.AppendUint32(nil, formatVersion)
		if err := setMeta(b, metaFormat, binary.LittleEndian.AppendUint32(format, formatVersion)); err != nil {
			return err
		}
	}
	return b.Commit(pebble.Sync)
}

// Close closes what Open opened. end, if not nil, is what a life leaves that ended
// cleanly: it is written down first, and at last what the files hold.
func (d *Disk) Close(end *End) (err error) {
	if end != nil && !d.c.Own {
		err = d.fenceable(func() error { return d.markClean(end) })
	}
	if d.db != nil {
		err = errors.Join(err, d.fenceable(func() error { return closePebble(d.db) }))
	}
	if end != nil && err == nil {
		if err = d.raiseReach(); err == nil {
			err = writeWholeAt(d.c, d.facts.beats, d.ledger.reached())
		}
	}
	return errors.Join(err, d.unlock())
}

// OpenFault turns an error met while the store was opened into an *OpenError that
// says what it is and what to do.
func (d *Disk) OpenFault(err error) error {
	err = openFault(d.c.Dir, err)
	tellSpace(d.c, err)
	return err
}
