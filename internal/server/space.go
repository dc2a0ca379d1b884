package server

import (
	"context"
	"path/filepath"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/teeth"
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
	// Units of registration that fit the limit: an eighth of it for items.
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
		def(&c.ScrubRate, 8<<20)
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

// clampSize returns v (0: no wish) between low and high.
func clampSize(v, high, low uint64) uint64 {
	if v == 0 {
		v = high
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

// newSpace makes the Server of a space; openSpace starts it.
func (srv *Server) newSpace(c SpaceConfig) *Server {
	cfg := srv.cfg.forSpace(c)
	cfg.Logger = cfg.Logger.With("space", c.Name)
	cfg.Shards = srv.shards // a shard map is the node's: every space has its shards
	sp := newServer(cfg)
	sp.root, sp.space, sp.laneSilence = srv, c.Name, srv.laneSilence
	return sp
}

// openSpace opens a space of a node that has its devices and its own store. It
// serves when openSpace returns; nothing is left of it after an error.
func (srv *Server) openSpace(ctx context.Context, c SpaceConfig) (_ *Server, err error) {
	begun := time.Now()
	sp := srv.newSpace(c)
	defer func() {
		if err != nil {
			sp.abandon()
		}
	}()
	for _, d := range srv.deviceList() {
		own, err := sp.newDevice(d.fabric, d.asked, d.dev, true)
		if err != nil && d.away.Load() == nil {
			return nil, err
		}
		if err != nil { // it is made when the device is back
			own = &device{srv: sp, index: len(sp.devices), fabric: d.fabric, asked: d.asked, dev: d.dev, attr: d.attr, shares: true}
			own.away.Store(d.away.Load())
		}
		own.node = d
		if teeth.Off(teeth.F16OwnPD) {
			own.pd = d.pd
		}
		sp.devices = append(sp.devices, own)
	}
	if err := sp.openParts(ctx); err != nil {
		return nil, err
	}
	for _, d := range sp.devices {
		if d.pd == nil {
			continue
		}
		if err := d.makeLanes(); err != nil {
			return nil, err
		}
	}
	sp.runParts()
	sp.log.Info("space open", "dir", sp.cfg.DataDir, "memory_limit", sp.cfg.MemoryLimit, "max_sessions", sp.cfg.MaxSessions,
		"took", time.Since(begun).Round(time.Millisecond))
	return sp, nil
}

// deviceFor returns what the space has made on the device of a listener of the
// node.
func (srv *Server) deviceFor(d *device) *device {
	if d.srv == srv {
		return d
	}
	for _, own := range srv.deviceList() {
		if own.node == d {
			return own
		}
	}
	return nil
}

// laneFor reserves a place for a session of the space that comes by a device of
// the node; nil if there is none.
func (srv *Server) laneFor(d *device) *lane {
	if own := srv.deviceFor(d); own != nil {
		return own.pick()
	}
	return nil
}

// enter counts the set-up of a session in, with its life; false if the space
// (or the node) is ending. The caller calls srv.wg.Done when the session has
// ended.
func (srv *Server) enter() bool {
	srv.sessMu.Lock()
	defer srv.sessMu.Unlock()
	if srv.sealed || srv.draining.Load() || !srv.serving.Load() {
		return false
	}
	srv.wg.Add(1)
	return true
}

// memTables is how many of Pebble's there are before writes wait.
const memTables = 4

// stateLimits logs what memory the node has promised, and to whom; and what all
// spaces together take beside that when each is as busy as it may be.
func (srv *Server) stateLimits(list []SpaceConfig) {
	if len(list) == 0 {
		return
	}
	sum, buffers := uint64(0), int64(0)
	for _, c := range list {
		c = c.withDefaults(&srv.cfg)
		own := srv.cfg.forSpace(c)
		sum += c.MemoryLimit
		buffers += own.ReceiveBytes + own.ReplyBytes + own.CacheBytes + memTables*int64(own.MemTableBytes)
	}
	srv.log.Info("memory limits", "node", srv.cfg.MemoryLimit, "spaces", len(list), "their_sum", sum,
		"together", srv.cfg.MemoryLimit+sum, "machine", memory.Machine(), "their_buffers_at_most", buffers)
}
