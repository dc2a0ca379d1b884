package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// EpochsPerRestore is how many epochs a restored store leaves free, so that its
// versions are none that the store it was made from gave out since.
const EpochsPerRestore = 64

// Adopt makes a store of its own out of a copy of a backup in dir: with a new
// id and a new epoch, and without the word that its last server ended cleanly,
// so that nothing that clients remember of the old one is believed of it. The
// copy must have no STORE file yet; Adopt writes it last, so that a copy that
// was cut short is never taken for a store. id is the content of the backup's
// STORE file.
//
// If the copy has a log that counts, because it is one of a stopped store, what it says
// behind the base comes into the base, and the log goes: the store gets a new one when it
// is started. A copy in which a log should be, and is not, is refused.
func Adopt(dir string, opt InspectOptions, id []byte) (newID [16]byte, err error) {
	c := Config{Dir: dir, FS: opt.FS}.WithDefaults()
	old, err := parseIdentity(id)
	if err != nil {
		return newID, &base.CorruptError{File: identityFile, Err: err}
	}
	if old.reader > formatVersion {
		return newID, facts{format: old.format, reader: old.reader}.check(c)
	}
	book, _, err := compareLedger(c)
	if err != nil {
		return newID, openFault(dir, err)
	}
	c.Shards = int(old.shards)
	d := New(c, base.NewFence(c.Logger, func(error) {}), &base.Counters{})
	d.fence.Opening.Store(true)
	d.ledger = newLedger(c, ledgerText{})
	d.options = optionsOf(old, c, d.events)
	d.options.FS = &stopFS{FS: &ledgerFS{FS: c.FS, ledger: d.ledger}, events: d.events}
	if d.db, d.stuck, err = openPebble(c.FS.PathJoin(dir, dataDir), d.options, d.fence); err != nil {
		return newID, openFault(dir, err)
	}
	err = d.fenceable(func() error { return adopt(d, old, book, opt.Tail) })
	if err = errors.Join(err, d.fenceable(func() error { return closePebble(d.db) })); err != nil {
		return newID, openFault(dir, err)
	}
	if old.format >= logFormat {
		old.unlogged, old.clean = true, false
		if err := clearLog(c); err != nil {
			return newID, openFault(dir, err)
		}
	}
	if err := writeWhole(c, 0); err != nil {
		return newID, err
	}
	old.id = d.facts.id
	return old.id, writeFile(c.FS, c.FS.PathJoin(dir, identityFile), old.encode())
}

// adopt brings what the log says into the base, and changes the facts.
func adopt(d *Disk, old identity, book ledgerText, open OpenTail) (err error) {
	tail, err := openTail(context.Background(), d.c, old, d.db, book, open)
	if err != nil {
		return err
	}
	if tail != nil {
		defer func() { err = errors.Join(err, tail.Close()) }()
		in := &intake{db: d.db}
		if err := tail.Write(context.Background(), in); err != nil {
			return errors.Join(err, in.commit(0))
		}
		if err := in.commit(0); err != nil {
			return err
		}
	}
	if d.facts, err = factsBehind(d.db, tail); err != nil {
		return err
	}
	return adoptFacts(d, old)
}

// adoptFacts changes the facts, and makes all that was changed durable.
func adoptFacts(d *Disk, old identity) error {
	if err := d.facts.check(d.c); err != nil {
		return err
	}
	if d.facts.id != old.id {
		return &base.CorruptError{File: dataDir, Detail: fmt.Sprintf("it belongs to store %s, %s says %s",
			idString(d.facts.id), identityFile, idString(old.id))}
	}
	if int(d.facts.epoch)+EpochsPerRestore > 1<<16-2 {
		return base.ErrEpochs
	}
	d.facts.id = newIdentity()
	d.facts.epoch += EpochsPerRestore
	source := append(binary.LittleEndian.AppendUint16(nil, d.facts.epoch), old.id[:]...)
	b := d.db.NewBatch()
	defer b.Close()
	err := errors.Join(
		setMeta(b, metaID, d.facts.id[:]),
		setMeta(b, metaEpoch, []byte{byte(d.facts.epoch), byte(d.facts.epoch >> 8)}),
		setMeta(b, metaRestored, source),
		b.Delete(metaKey(metaClean), nil),
		b.Delete(metaKey(metaRefused), nil),  // a new store, which is nobody's copy
		b.Delete(metaKey(metaPosition), nil), // in a log that is not its own
	)
	if err != nil {
		return err
	}
	if old.format >= logFormat {
		return d.commit(b, nil)
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return err
	}
	return d.db.Flush()
}
