package server

import (
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/store"
)

// A space is the part of a node that one tenant with one-sided access has for
// itself. Rights over keys mean nothing to a NIC: whoever may READ a slab reads
// all of it, and within a protection domain an rkey that one tenant learnt opens
// the memory to every other. So such a tenant has its own slabs and index *and*
// its own protection domain; the NIC compares the domain of queue pair and
// region, and another tenant's true rkey is refused like an invented one.
//
// A space is a Server inside the Server: everything that serves a request
// (store with its directory, lock, identity and recovery, regions, beat,
// incarnation and lease, completion queues, lanes, buffers, staging, pools) is
// its own. The node keeps what stands before that: ports, limits of
// connections, admin port, the log, the opened devices. A session belongs to its
// space from the moment its login is known, before a queue pair is made for it.
//
// # When a space fails
//
// A space whose durability is gone fences itself: no beat, no session, no lease;
// its tenants are refused, the node and the other spaces go on. Their files are
// apart, and a node that ended with it would take from all tenants what one of
// them has lost. It takes a restart of the node to try again: the failed store
// keeps its lock. Fatal of the node itself ends all spaces with it.

// forSpace is the configuration of a space: the node's, made small. What it
// costs when nothing happens in it stands in the documentation of the server;
// the bounds here are those of one tenant that is busy.
func (c Config) forSpace(sp SpaceConfig) Config {
	c.Listeners, c.AdminListen, c.Spaces, c.Cluster = nil, "", nil, nil
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
	c.MemTableBytes = 4 << 20
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

// of returns what the space has made on the device of a listener of the
// node.
func (ds *devices) of(d *device) *device {
	srv := ds.srv
	if d.srv == srv {
		return d
	}
	for _, own := range ds.all() {
		if own.Device == d.Device {
			return own
		}
	}
	return nil
}

// laneFor reserves a place for a session of the space that comes by a device of
// the node; nil if there is none.
func (ds *devices) laneFor(d *device) *session.Lane {
	if own := ds.of(d); own != nil {
		return own.Pick()
	}
	return nil
}

// enter counts the set-up of a session in, with its life; false if the space
// (or the node) is ending. The caller calls srv.wg.Done when the session has
// ended.
func (srv *Server) enter() bool {
	return srv.sessions.Enter(&srv.wg, func() bool { return !srv.draining.Load() && srv.serving.Load() })
}

// FillProgress tells how far memory has been filled after a start.
type FillProgress = store.Progress

// A fill is how far the memory of a space has been filled after a start. The store
// tells it.
type fill struct {
	srv    *Server
	last   atomic.Pointer[store.Progress] // nil: nothing was told yet
	logged atomic.Int64                   // when progress was last logged
}

// progress notes how far the fill has come; the store calls it.
func (f *fill) progress(p store.Progress) {
	f.last.Store(&p)
	if tell := f.srv.cfg.OnFill; tell != nil {
		tell(p)
	}
	if p.Done {
		what := []any{"keys", p.Keys, "bytes", p.Bytes, "took", p.Elapsed.Round(time.Millisecond)}
		if p.Err != nil {
			f.srv.log.Warn(base.LogAlways, "memory is not filled", append(what, "err", p.Err)...)
		} else {
			f.srv.log.Info("memory filled", what...)
		}
		return
	}
	// A line every few seconds is enough; the numbers are in /metrics.
	if now := f.srv.now(); f.srv.cfg.OnFill == nil && now-f.logged.Load() > int64(2*time.Second) {
		f.logged.Store(now)
		f.srv.log.Info("filling memory", "keys", p.Keys, "expected", p.Expected, "shards_filled", p.ShardsFilled, "shards", p.Shards,
			"keys_per_second", int64(float64(p.Keys)/max(p.Elapsed.Seconds(), 1e-3)))
	}
}

// Filled reports whether all keys are in memory again after a start: misses
// are then answered one-sidedly too.
func (srv *Server) Filled() bool { return srv.serving.Load() && srv.store.Filled() }

// openStaging makes the staging memory of the node, or of a space, which waits in
// the node's line.
func (srv *Server) openStaging() {
	var line *memory.StageLine
	if srv.root == srv {
		line = memory.NewStageLine(srv.cfg.StagingBytes, srv.stagingShare, func(tenant *base.Account) { tenant.Hit(srv.bounds, base.BoundLoginStaging) })
	} else {
		line = srv.root.staging.Line()
	}
	var sinks []memory.Sink
	for _, d := range srv.devices.list {
		sinks = append(sinks, memory.Sink{PD: d.PD, Attr: d.Attr})
	}
	srv.staging = memory.NewStaging(sinks, srv.cfg.StagingBytes, srv.cfg.MemoryKind, line)
}
