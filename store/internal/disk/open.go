package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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
	return fresh, locked, d.Base.open(fresh)
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
// the server's time. Join was called before.
func (d *Disk) Begin(now func() uint64) error {
	err := d.fenceable(func() error { return d.begin(now()) })
	if err == nil {
		d.fence.Opening.Store(false)
	}
	return err
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

// Close closes what Open opened. end is not nil of a life that ended cleanly, of which
// MarkClean was told: at last it is written down what the files hold.
func (d *Disk) Close(end *End) (err error) {
	if d.db != nil {
		err = d.fenceable(func() error { return closePebble(d.db) })
	}
	if end != nil && err == nil {
		if err = d.raiseReach(); err == nil {
			err = writeWhole(d.c, d.ledger.reached())
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
