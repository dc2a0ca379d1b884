package disk

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ForTests is what tests of package store need, and no program: they break what stands
// on the disk, and look at it.
type ForTests struct{ *Disk }

// ForTests returns the disk for tests.
func (d *Disk) ForTests() ForTests { return ForTests{d} }

// DB returns Pebble.
func (d ForTests) DB() *pebble.DB { return d.db }

// Options returns those that the store's Pebble has.
func (d ForTests) Options() *pebble.Options { return d.options }

// Listener returns what Pebble tells of its events.
func (d ForTests) Listener() *pebble.EventListener { return d.events.listener() }

// BackgroundErrors is that of Stats. It does not ask Pebble, which may hang.
func (d ForTests) BackgroundErrors() uint64 { return d.events.counts.background.Load() }

// BlobFiles returns the names of the blob files that the manifest has now, sorted.
func (d ForTests) BlobFiles() (names []string, err error) {
	err = eachBlob(d.db, func(name string, _ uint64) error {
		names = append(names, name)
		return nil
	})
	slices.Sort(names)
	return names, err
}

// Noted returns how many keys the newest note counted.
func (d ForTests) Noted() uint64 { return d.facts.noted }

// Written is what Pebble says now of the format, the oldest program that can read
// it, the store, and the heartbeats.
func (d ForTests) Written() (format, reader uint32, id [16]byte, beats uint64, err error) {
	f, err := readFacts(d.db)
	return f.format, f.reader, f.id, f.beats, err
}

// WriteIdentity has STORE name a format, as that of programs for it.
func (d ForTests) WriteIdentity(format uint32) error {
	id := identity{format: format, reader: format, shards: uint32(d.c.Shards), id: d.facts.id}
	return writeFile(d.c.FS, d.c.FS.PathJoin(d.c.Dir, identityFile), id.encode())
}

// PlaceForTests returns the record of a base's position as this package reads it.
func PlaceForTests(epoch uint64) (key, record []byte) {
	place := make([]byte, positionLen)
	binary.LittleEndian.PutUint64(place[positionEpoch:], epoch)
	key = metaKey(metaPosition)
	record = make([]byte, RecordSize(len(place), false))
	PutRecord(record, key, Record{Value: place})
	return key, record
}

// LedgerSizesForTests returns how many bytes of its files the ledger of a directory knows.
func LedgerSizesForTests(fsys vfs.FS, dir string) (map[string]int64, error) {
	text, err := readFile(fsys, fsys.PathJoin(dir, ledgerFile))
	if err != nil {
		return nil, err
	}
	book, err := parseLedger(text)
	sizes := make(map[string]int64)
	for _, l := range book.lines {
		sizes[l.name] = l.size
	}
	return sizes, err
}

// Drop closes Pebble and the directory of a store that was fenced, and could not be
// closed.
func (d ForTests) Drop() error { return errors.Join(d.db.Close(), d.lock.Close()) }
