package server

import (
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/store"
)

// A SpaceConfig names a space of the node: the part that one tenant with
// one-sided access has for itself (space.go).
type SpaceConfig struct {
	// Name is the name of the space and of its directory, DataDir/tenants/NAME:
	// 1 to 63 of [a-z0-9-.], beginning with a letter or a digit. Not "main",
	// which is the node's own.
	Name string
	// MemoryLimit bounds the regions of the space, bytes, beside
	// Config.MemoryLimit. Default 64 MiB, at least 16 MiB.
	MemoryLimit uint64
	// MaxSessions bounds the clients connected to the space. Default 256, at
	// most Config.MaxSessions.
	MaxSessions int
}

// MaxSpaces bounds the spaces of a node: each has a store, a beat, lanes and
// buffers of its own.
const MaxSpaces = 64

const (
	defSpaceMemory   = 64 << 20
	minSpaceMemory   = 16 << 20
	defSpaceSessions = 256
)

func (c SpaceConfig) withDefaults(node *Config) SpaceConfig {
	def(&c.MemoryLimit, defSpaceMemory)
	def(&c.MaxSessions, min(defSpaceSessions, node.MaxSessions))
	return c
}

// checkSpaces returns every fault of a set of spaces.
func (c Config) checkSpaces(list []SpaceConfig) []error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("server: "+format, args...)) }
	if len(list) > MaxSpaces {
		fault("%d spaces: at most %d", len(list), MaxSpaces)
	}
	seen := make(map[string]bool)
	def(&c.MemoryLimit, 1<<30) // the store's
	total := c.MemoryLimit
	for _, sp := range list {
		sp = sp.withDefaults(&c)
		if !auth.ValidName(sp.Name) {
			fault("space %q: the name must be 1 to %d of [a-z0-9-.], begin with a letter or a digit, and not be %q", sp.Name, auth.MaxName, auth.MainSpace)
		}
		if seen[sp.Name] {
			fault("space %q is named twice", sp.Name)
		}
		seen[sp.Name] = true
		if sp.MemoryLimit < minSpaceMemory {
			fault("space %q: memory limit = %d bytes: must be at least %d", sp.Name, sp.MemoryLimit, minSpaceMemory)
		}
		if sp.MaxSessions < 1 || sp.MaxSessions > c.MaxSessions {
			fault("space %q: max sessions = %d: must be 1 to %d", sp.Name, sp.MaxSessions, c.MaxSessions)
		}
		total += sp.MemoryLimit
	}
	// A node without spaces may promise more than it has, as ever: nobody else
	// lives on it. With tenants the promise is to others.
	if has := machine.Memory(); len(list) > 0 && has > 0 && total > uint64(has) {
		fault("memory limits: %d bytes for the node's own keys and %d for %d spaces are %d together, this machine (or its cgroup) has %d: lower memory_limit or the tenants'",
			c.MemoryLimit, total-c.MemoryLimit, len(list), total, has)
	}
	return errs
}

// forSpace is the configuration of a space: the node's, made small. What it
// costs when nothing happens in it stands in the documentation of the server;
// the bounds here are those of one tenant that is busy.
func (c Config) forSpace(sp SpaceConfig) Config {
	c.Listeners, c.AdminListen, c.Spaces, c.Cluster = nil, "", nil, nil
	c.Keeping = nil
	c.Secret, c.Tenants = nil, nil // who comes in is the node's affair
	c.DataDir = c.spaceDir(sp.Name)
	nodeLimit := c.MemoryLimit
	def(&nodeLimit, 1<<30)
	c.MemoryLimit, c.MaxSessions = sp.MemoryLimit, sp.MaxSessions
	// Units of registration that fit the limit, where the node has sizes of its own; else
	// the store chooses.
	c.RegionSize = clampSize(c.RegionSize, sp.MemoryLimit/8, 4<<20)
	c.IndexRegionSize = clampSize(c.IndexRegionSize, sp.MemoryLimit/32, 2<<20)
	c.CacheBytes = smaller(c.CacheBytes, 4<<20)
	c.LogBytes = spaceLog(c.LogBytes, sp.MemoryLimit, nodeLimit)
	c.MaxOpenFiles = c.SpaceOpenFiles
	c.InflightBytes = smaller(c.InflightBytes, 16<<20)
	if c.WatchBytes > 0 {
		c.WatchBytes = min(c.WatchBytes, 2<<20)
	}
	// In proportion: a sweep of a space takes as long as one of the node.
	if c.ScrubRate >= 0 {
		def(&c.ScrubRate, store.ScrubRateFor(nodeLimit))
		c.ScrubRate = max(256<<10, int64(float64(c.ScrubRate)*float64(sp.MemoryLimit)/float64(max(1, nodeLimit))))
	}
	c.MaxWatches = min(c.MaxWatches, 4*sp.MaxSessions)
	c.ReceiveBytes = max(int64(4*c.RequestSize), min(c.ReceiveBytes/16, int64(sp.MaxSessions*(c.Credits+1)*c.RequestSize)))
	c.ReplyBytes = max(int64(2*c.ReplySize), c.ReplyBytes/8)
	c.StagingBytes = max(minStaging, c.StagingBytes/4)
	c.Workers = max(2, c.Workers/4)
	c.Lanes = max(1, runtime.GOMAXPROCS(0)/8)
	return c
}

// spaceLog is the bound of a space's log: in proportion to its memory, because it has as much
// less to write. So a start after a crash reads no more for all spaces together than for
// the node, but for the least that a log can be.
func spaceLog(node int64, memory, nodeMemory uint64) int64 {
	def(&node, store.DefaultLogBytes)
	share := int64(float64(node) * float64(memory) / float64(max(1, nodeMemory)))
	return max(store.MinLogBytes, min(share, node)&^(1<<20-1))
}

// clampSize returns v between low and high; 0, which is no size, stays.
func clampSize(v, high, low uint64) uint64 {
	if v == 0 {
		return 0
	}
	return max(low, min(v, high))
}

// smaller returns v, or most if v is larger or not given.
func smaller(v, most int64) int64 {
	if v <= 0 {
		return most
	}
	return min(v, most)
}

func joinPath(fs vfs.FS, elem ...string) string {
	if fs != nil {
		return fs.PathJoin(elem...)
	}
	return filepath.Join(elem...)
}

// spaceDir is the directory of a space; none on a node that keeps nothing on
// disk.
func (c *Config) spaceDir(name string) string {
	if c.Mode == store.Cache {
		return ""
	}
	return joinPath(c.FS, c.DataDir, "tenants", name)
}
