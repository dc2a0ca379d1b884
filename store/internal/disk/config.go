package disk

import (
	"cmp"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A SyncPolicy says when a write may be acknowledged. The zero value is Always.
type SyncPolicy uint8

const (
	// Always acknowledges and publishes a write after its fsync. What anyone
	// has seen outlives a crash of process or machine.
	Always SyncPolicy = iota
	// Interval publishes before the fsync, which follows within SyncInterval.
	// A crash of machine or process loses at most that much of the tail.
	Interval
	// Off lets nobody wait for the disk. A crash of the machine loses what the
	// operating system had not written yet, a crash of the process what it had
	// not handed to it: at most the last second, of which a sync of the log that
	// nobody waits for makes sure.
	Off
)

// String returns the policy as it is written in config files.
func (p SyncPolicy) String() string {
	switch p {
	case Always:
		return "always"
	case Interval:
		return "interval"
	case Off:
		return "off"
	}
	return fmt.Sprintf("SyncPolicy(%d)", uint8(p))
}

// UnmarshalText is the inverse of SyncPolicy.String; it makes SyncPolicy an
// encoding.TextUnmarshaler.
func (p *SyncPolicy) UnmarshalText(text []byte) error {
	for v := Always; v <= Off; v++ {
		if v.String() == string(text) {
			*p = v
			return nil
		}
	}
	return fmt.Errorf("store: sync policy %q: must be always, interval or off", text)
}

// Config is what is to be known of a directory before it is opened. Zero
// means the default where one is named.
type Config struct {
	Dir    string // of the store; empty: of a cache, which has none
	FS     vfs.FS // the file system that Dir lives on. Default: the machine's
	Shards int    // of a new store, and expected of an old one

	Sync       SyncPolicy
	EpochAbove uint16 // epochs of this opening begin above it; 0: none

	CacheBytes   int64 // Pebble's block cache. Default 64 MiB
	MaxOpenFiles int   // Pebble keeps open. Default 4096
	MinFreeBytes int64 // floor of free space. Default 64 MiB; negative: no floor

	// WALFailoverDir is where a part of Pebble's log may stand of a store of format 1 or 2: its
	// second directory, to which it went while the first was slow. It is needed for the
	// upgrade of a store that was run with one, which removes the log there. Default: none.
	WALFailoverDir string

	Logger *slog.Logger // default: none
}

// WithDefaults returns the configuration with every default filled in.
func (c Config) WithDefaults() Config {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.CacheBytes = cmp.Or(c.CacheBytes, 64<<20)
	c.MaxOpenFiles = cmp.Or(c.MaxOpenFiles, 4096)
	c.MinFreeBytes = cmp.Or(c.MinFreeBytes, 64<<20)
	return c
}
