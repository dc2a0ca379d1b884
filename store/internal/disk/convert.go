package disk

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/wal"
)

// How a store of format 1 or 2 becomes one of format 3. A crash between any two steps
// leaves a store that the next start opens, with all that was acknowledged:
//
//	Pebble is opened with its log, as ever; what the log has is flushed into tables
//	                                           (format 2, for older programs too)
//	the files of Pebble's log go               (format 2)
//	STORE says format 3 and "log new"          older programs refuse it from here on
//	Pebble is opened without a log; the facts say format 3, and no more that
//	the last life ended cleanly, which STORE says; flushed
//	the store's log begins (Base.Begin)
//	STORE says no more "log new"               from here on a log that is missing is damage
//
// Pebble's log goes before STORE says 3, and nothing of it is read afterwards: otherwise
// a file of it that came back after a crash could be replayed over newer tables.

// upgrade takes a store of an older format up to where STORE says 3. What keeps it from
// being served (damage, another number of shards, a refusal) is found before anything is
// changed.
func (b *Base) upgrade() error {
	d := b.d
	old := New(d.c, d.fence, d.counts)
	old.identity = d.identity
	err := old.openOld()
	if err == nil {
		err = old.fenceable(old.db.Flush)
	}
	if old.db != nil {
		err = errors.Join(err, old.fenceable(func() error { return closePebble(old.db) }))
	}
	d.stuck = old.stuck
	if err != nil {
		return err
	}
	if err := old.ledger.dropLogs(); err != nil {
		return err
	}
	if err := removeLogs(d.c); err != nil {
		return err
	}
	d.identity.format, d.identity.reader = formatVersion, formatVersion
	d.identity.unlogged, d.identity.clean = true, old.facts.clean != nil
	return writeIdentity(d.c, d.identity)
}

// openOld opens a store of format 1 or 2, whose log is Pebble's, which replays it.
func (d *Disk) openOld() error {
	c := d.c
	found, err := d.openLedger(false)
	if err != nil {
		return err
	}
	if err := probeWrites(c.FS, c.Dir); err != nil {
		return err
	}
	d.fence.Opening.Store(true)
	o := oldOptions(c, d.events)
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
	return d.facts.belongs(d.identity)
}

// oldMemTable is the memtable of a Pebble with a log, which takes what the log has.
const oldMemTable = 11 << 20

// oldOptions returns the options of a store of format 1 or 2.
func oldOptions(c Config, v *events) *pebble.Options {
	o := pebbleOptions(c, v)
	o.MemTableSize, o.MemTableStopWritesThreshold = oldMemTable, 2
	// Nothing but the log is to change: the base compacts, as soon as the store serves.
	o.DisableAutomaticCompactions = true
	if c.WALFailoverDir != "" {
		o.WALFailover = &pebble.WALFailoverOptions{
			Secondary: wal.Dir{FS: c.FS, Dirname: c.WALFailoverDir},
		}
	}
	return o
}

// optionsOf returns the options of a store that is looked at, of any format.
func optionsOf(id identity, c Config, v *events) *pebble.Options {
	if id.format < logFormat {
		return oldOptions(c, v)
	}
	return baseOptions(c, v)
}

// removeLogs removes the files of Pebble's log, durably. All that they had is in tables.
// Pebble removes most of them by itself, some time, and does not say when that is durable.
func removeLogs(c Config) error {
	dirs := []string{c.FS.PathJoin(c.Dir, dataDir)}
	if c.WALFailoverDir != "" {
		dirs = append(dirs, c.WALFailoverDir)
	}
	for _, dir := range dirs {
		names, err := c.FS.List(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !strings.HasSuffix(name, ".log") {
				continue
			}
			if err := c.FS.Remove(c.FS.PathJoin(dir, name)); err != nil {
				return err
			}
		}
		if err := syncDir(c.FS, dir); err != nil {
			return err
		}
	}
	return nil
}

// dropLogs takes the files of Pebble's log out of the ledger, before they are removed.
func (l *ledger) dropLogs() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.files {
		if strings.HasSuffix(name, ".log") {
			delete(l.files, name)
		}
	}
	return l.writeLocked()
}

// convert makes a base for a new log out of what stands there: of an upgraded store, or of
// a copy of a base whose log was left behind. A position in that other log means nothing
// in the new one, which would take its first records for records that the base has. convert
// can be cut short, and begun again.
func (b *Base) convert() error {
	f, err := readFacts(b.d.db)
	if err != nil {
		return err
	}
	if err := f.check(b.d.c); err != nil {
		return err
	}
	place, err := b.Place()
	if err != nil || place == nil && f.format == formatVersion {
		return err
	}
	batch := b.d.db.NewBatch()
	defer batch.Close()
	format := binary.LittleEndian.AppendUint32(nil, formatVersion)
	err = errors.Join(
		setMeta(batch, metaFormat, binary.LittleEndian.AppendUint32(format, formatVersion)),
		setMeta(batch, metaEpoch, binary.LittleEndian.AppendUint16(nil, f.unspared)),
		batch.Delete(metaKey(metaPosition), nil),
		batch.Delete(metaKey(metaClean), nil))
	f.countedKeys(b.d.c.Shards)
	if f.keys != nil {
		err = errors.Join(err, setMeta(batch, metaKeys, encodeKeys(f.keys)))
	}
	return b.commit(batch, err)
}

// commit writes a batch into the base, durably: by a flush, because there is no log.
func (b *Base) commit(batch *pebble.Batch, err error) error {
	if err == nil {
		err = batch.Commit(pebble.NoSync)
	}
	if err == nil {
		err = b.d.db.Flush()
	}
	return err
}
