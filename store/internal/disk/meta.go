package disk

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// The store's own keys: shard 0xffff, kind meta, a name. Each is a record with
// its own checksum. They say what the store is, so that one opened with wrong
// settings is refused, and carry what outlives an incarnation: the epoch and
// how the last one ended.

const (
	metaFormat = "format" // u32: formatVersion; u32: the oldest version that can read it
	metaID     = "id"     // 16 random bytes: which store this is
	metaShards = "shards" // u32
	metaHash   = "hash"   // text: how keys are mapped to shards; a fixed parameter
	metaEpoch  = "epoch"  // u16: the newest epoch of any version given out
	metaClean  = "clean"  // only after a clean stop: see cleanMark
	metaBegan  = "began"  // u64: when the newest opening began, microseconds since 1970
	metaKeys   = "keys"   // u64 per shard, or one for all: keys not long ago, see NoteKeys
	// metaClock, metaShort, metaWatch: facts.go; metaRefused: refusal.go
	metaRestored = "restored" // u16: the epoch that a restore gave the store; 16 bytes: the id of the one whose backup it was
	metaValues   = "values"   // what the base has of tables of values: see valuesMark
	metaBeat     = "beat"     // u64: counter, in formats 1 and 2: a small synced write that let
	// Pebble see damage in its log that lay before it
)

// formatVersion is what this code writes. A newer one is refused; an older one is upgraded
// (convert.go).
//
//	1  Pebble with its log; keys without expiry, no records of requests
//	2  keys may expire; kinds dedup and expiry
//	3  a base, which has no log of Pebble's, and is older than what was acknowledged; and
//	   the store's own log
//	4  large values in tables of their own, which records of the log and of the base refer
//	   to. The base of an older one still says 3
//
// A store of format 1 is one of format 2 in which nothing of that has happened yet.
const formatVersion = 4

// logFormat is the first format with a log of its own.
const logFormat = 3

// shardHash names the mapping of keys to shards. The store is told the shard
// of each key; that those who tell it agree for ever is recorded here.
const shardHash = "xxhash64-tag-v1"

// metaKey returns the Pebble key of a store-wide fact.
func metaKey(name string) []byte { return AppendKey(nil, StoreShard, KindMeta, []byte(name)) }

// setMeta adds a fact to a batch.
func setMeta(b *pebble.Batch, name string, value []byte) error {
	key := metaKey(name)
	rec := make([]byte, RecordSize(len(value), false))
	PutRecord(rec, key, Record{Value: value})
	return b.Set(key, rec, nil)
}

// getMeta returns a fact, or nil if it is not there.
func getMeta(db pebble.Reader, name string) ([]byte, error) {
	key := metaKey(name)
	b, closer, err := db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	rec, err := ParseRecord(b, key)
	if err != nil {
		return nil, &base.CorruptError{Shard: StoreShard, Key: []byte(name), Detail: err.Error()}
	}
	return append([]byte{}, rec.Value...), nil
}

// A facts is what the meta keys say.
type facts struct {
	format   uint32 // 0: there is no format key
	reader   uint32 // the oldest format version that can read this store
	id       [16]byte
	shards   uint32
	hash     string
	epoch    uint16
	clean    *cleanMark // nil: the last incarnation did not end cleanly
	keys     []uint64   // keys of each shard not long before the end; nil: unknown
	beats    uint64
	spare    uint16   // an epoch that was begun and not used; 0: none
	unspared uint16   // the epoch before that is taken back
	restored uint16   // the epoch that a restore gave the store
	source   []byte   // id of the store whose backup this is, if it was never started since; else nil
	watch    []byte   // value of metaWatch
	short    bool     // results of requests were forgotten early
	began    uint64   // of the last opening; 0: by a program that did not note it
	refused  *Refusal // nil: it may be served
	noted    uint64   // keys of the newest note
	clock    uint64   // no server time above it was shown; 0: nothing could expire
}

// cleanMark is what a clean stop leaves behind.
//
//	+---------+------------------------
//	| version | keys per shard
//	| u64     | u64 each
//	+---------+------------------------
//
// The key counts are those with a slot in the index: a guess good enough to
// size the next one.
type cleanMark struct {
	version uint64 // the newest version given out
	keys    []uint64
}

func (m cleanMark) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, m.version)
	for _, n := range m.keys {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func parseCleanMark(b []byte) (*cleanMark, error) {
	if len(b) < 8 || len(b)%8 != 0 {
		return nil, fmt.Errorf("clean-stop mark of %d bytes", len(b))
	}
	m := &cleanMark{version: binary.LittleEndian.Uint64(b)}
	for b = b[8:]; len(b) > 0; b = b[8:] {
		m.keys = append(m.keys, binary.LittleEndian.Uint64(b))
	}
	return m, nil
}

// readFacts reads every meta key.
func readFacts(db pebble.Reader) (facts, error) { return factsOf(db, nil) }

// readFactsFrom reads every fact with get, which returns nil for one that is not there.
// settleEpoch comes next.
func readFactsFrom(fact func(name string) ([]byte, error)) (facts, error) {
	var f facts
	var fault error
	get := func(name string, size int) []byte {
		b, err := fact(name)
		if isDenied(b) {
			return nil
		}
		if err == nil && b != nil && size >= 0 && len(b) != size {
			err = &base.CorruptError{Shard: StoreShard, Key: []byte(name), Detail: fmt.Sprintf("%d bytes, expected %d", len(b), size)}
		}
		if err != nil {
			fault = errors.Join(fault, err)
			return nil
		}
		return b
	}
	if b := get(metaFormat, 8); b != nil {
		f.format, f.reader = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	}
	copy(f.id[:], get(metaID, len(f.id)))
	if b := get(metaShards, 4); b != nil {
		f.shards = binary.LittleEndian.Uint32(b)
	}
	f.hash = string(get(metaHash, -1))
	if b := get(metaEpoch, 2); b != nil {
		f.epoch = binary.LittleEndian.Uint16(b)
	}
	if b := get(metaBeat, 8); b != nil {
		f.beats = binary.LittleEndian.Uint64(b)
	}
	if b := get(metaClock, 8); b != nil {
		f.clock = binary.LittleEndian.Uint64(b)
	}
	if b := get(metaBegan, 8); b != nil {
		f.began = binary.LittleEndian.Uint64(b)
	}
	if b := get(metaRestored, 18); b != nil {
		f.restored, f.source = binary.LittleEndian.Uint16(b), b[2:]
	}
	if b := get(metaSpare, 2); b != nil {
		f.spare = binary.LittleEndian.Uint16(b)
	}
	f.short = get(metaShort, 1) != nil
	f.watch = get(metaWatch, -1)
	if b := get(metaKeys, -1); b != nil {
		var err error
		if f.keys, err = parseKeys(b, int(f.shards)); err != nil {
			fault = errors.Join(fault, &base.CorruptError{Shard: StoreShard, Key: []byte(metaKeys), Detail: err.Error()})
		}
	}
	if b := get(metaRefused, -1); b != nil {
		var err error
		if f.refused, err = parseRefusal(b); err != nil {
			fault = errors.Join(fault, &base.CorruptError{Shard: StoreShard, Key: []byte(metaRefused), Detail: err.Error()})
		}
	}
	if b := get(metaClean, -1); b != nil {
		var err error
		if f.clean, err = parseCleanMark(b); err != nil {
			fault = errors.Join(fault, &base.CorruptError{Shard: StoreShard, Key: []byte(metaClean), Detail: err.Error()})
		}
	}
	return f, fault
}

// check says whether a store with these facts may be opened with c.
func (f facts) check(c Config) error {
	switch {
	case f.format == 0:
		return &base.OpenError{Dir: c.Dir, Err: base.ErrForeignDir, Hint: "it is a Pebble store, but not one of kvserver; choose another directory"}
	case f.reader > formatVersion:
		return &base.OpenError{Dir: c.Dir,
			Err:  fmt.Errorf("%w: it has format %d, this is a kvserver for format %d", base.ErrFormatVersion, f.format, formatVersion),
			Hint: fmt.Sprintf("run the kvserver that wrote it, or a newer one; it must read format %d", f.format)}
	case f.hash != shardHash:
		return &base.OpenError{Dir: c.Dir,
			Err:  fmt.Errorf("%w: its keys were placed by %q, this kvserver knows %q", base.ErrFormatVersion, f.hash, shardHash),
			Hint: "run the kvserver that wrote it"}
	case f.shards != uint32(c.Shards):
		return &base.OpenError{Dir: c.Dir,
			Err:  fmt.Errorf("%w: it has %d, the configuration says %d", base.ErrShardCount, f.shards, c.Shards),
			Hint: fmt.Sprintf("set shards to %d, or export and import into a new directory", f.shards)}
	case f.epoch == 0:
		return &base.CorruptError{Shard: StoreShard, Key: []byte(metaEpoch), Detail: "missing"}
	}
	return nil
}

// idString is how a store's id is shown.
func idString(id [16]byte) string { return hex.EncodeToString(id[:]) }
