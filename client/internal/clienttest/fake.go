package clienttest

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Server is a fabric and the server behind it in one, for what a real one
// would not do: answer nonsense, sample one READ at two moments, stop at a
// chosen instant. It speaks the handshake and the view; everything else is a
// hook. Its memory is one place space: region 0 (index) and region 1 (items).
type Server struct {
	Secret      []byte
	Incarnation uint64
	Mem         []byte // both regions, in place order

	Mu sync.Mutex // guards Mem against concurrent READs and what follows
	// OnRead, if set, serves a READ instead of a plain copy.
	OnRead func(place uint64, dst []byte)
	// OnRequest answers a request: nil means the defaults, an empty reply that
	// nothing comes. The reply's id may be anything.
	OnRequest func(h wire.Header, msg []byte) (reply []byte, handled bool)
	OnPost    func([]rdma.SendWR) // sees each post of the client; set before the first one
	Welcome   func(*wire.Welcome)
	Accept    func(private []byte) []byte // changes the acceptance
	Reject    []byte                      // refuse with this private data
	Connect   func(context.Context) error // waits, or fails, before anything is answered

	Packs         bool               // it takes packs, and answers with them
	PacksIn       atomic.Int64       // packs that came
	LateSends     atomic.Bool        // SENDs complete when QP.Release says so, behind their replies
	Direct        bool               // its memory is mapped: rdma.DirectReader
	Unmapped      func() bool        // if set, tells of each of those READs whether memory is not mapped now; Mu is held
	Sinks         Sinks              // its QPs take prepared READs: rdma.SpinReader
	Shards        uint32             // 0: one
	Others        map[string]*Server // by address: the other servers that can be connected to
	View, reclaim uint64
	beats         uint64 // of Tick
	QPs           []*QP
	Dials         atomic.Int64
}

const (
	IndexBytes   = 1 << 20
	ItemBytes    = 2 << 20
	RingEntries  = 16           // of the reclaim list
	messageBytes = 16<<10 + 256 // bytes of a SEND, as in a client
)

// NewServer is a server with an empty memory and beat 1.
func NewServer(incarnation uint64) *Server {
	f := &Server{Incarnation: incarnation, Mem: make([]byte, IndexBytes+ItemBytes), View: 1}
	f.Beat(1)
	return f
}

// header is that of region 0.
func (f *Server) header() layout.RegionHeader {
	return layout.RegionHeader{
		Incarnation: f.Incarnation, Seed: 42, Shards: 1,
		Region:     layout.Region{ID: 0, Kind: layout.KindIndex, Base: 0, Length: IndexBytes},
		RootOffset: 4096, ReclaimOffset: 8192, ReclaimEntries: RingEntries,
	}
}

// Beat writes the beat with that counter.
func (f *Server) Beat(counter uint64) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.BeatLocked(counter)
}

// BeatLocked is Beat for a hook, which runs with Mu locked.
func (f *Server) BeatLocked(counter uint64) {
	layout.StoreBeat(f.Mem, layout.Beat{
		Counter: counter, Incarnation: f.Incarnation, ViewVersion: f.View, ReclaimVersion: f.reclaim,
	})
}

// Change runs fn with the memory to itself.
func (f *Server) Change(fn func(mem []byte)) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	fn(f.Mem)
}

// Retire puts a page on the reclaim list.
func (f *Server) Retire(p layout.Place, pages uint32) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.reclaim++
	layout.PutRetired(f.Mem, f.header(), layout.Retired{Version: f.reclaim, Place: p, Pages: pages})
	layout.StoreReclaimVersion(f.Mem, f.reclaim)
}

// The places of the fake index: a directory of one entry and one segment.
const (
	DirPlace     = layout.Place(64 << 10 / 8)
	SegmentPlace = layout.Place(128 << 10 / 8)
	ItemsPlace   = layout.Place(IndexBytes / 8)
)

// BuildIndex writes an empty segment at seg and makes the directory name it.
func (f *Server) BuildIndex(mem []byte, seg layout.Place) {
	f.EmptySegment(mem, seg, 0)
	binary.LittleEndian.PutUint64(mem[DirPlace.Byte():], layout.MakeDirEntry(seg, 0, 0))
	binary.LittleEndian.PutUint64(mem[4096:], layout.MakeRoot(DirPlace, 0))
}

// EmptySegment writes a segment of one group without keys at seg.
func (f *Server) EmptySegment(mem []byte, seg layout.Place, shard uint16) {
	clear(mem[seg.Byte() : seg.Byte()+uint64(layout.SegmentBytes(0))])
	for b := range layout.SegmentBuckets(0) {
		h := layout.MakeBucketHeader(0, 0, b, 0, shard, 0)
		binary.LittleEndian.PutUint64(mem[seg.Byte()+uint64(b)*layout.BucketSize:], uint64(h))
	}
}

// SlotAt is the place of the first slot of the key's first main bucket.
func SlotAt(seg layout.Place, key []byte) uint64 {
	a, _ := layout.HashKey(42, key).Mains(layout.SegmentGroups(0))
	return seg.Byte() + uint64(a.MainBucket())*layout.BucketSize + 8
}

// PutItem writes a live item and a slot for it.
func (f *Server) PutItem(mem []byte, seg, at layout.Place, key, value []byte, v layout.Version) {
	it := layout.Item{Version: v, Key: key, Value: value}
	size := layout.ItemSize(len(key), len(value), false)
	layout.WriteItem(mem[at.Byte():at.Byte()+uint64(size)], f.Incarnation, at, it, layout.Pending)
	layout.SetState(mem[at.Byte():], v, layout.Live)
	class, _ := layout.ClassFor(size)
	slot := layout.MakeSlot(layout.HashKey(42, key).Fingerprint(), class, at)
	binary.LittleEndian.PutUint64(mem[SlotAt(seg, key):], uint64(slot))
}

// reply answers a request as a server would.
func (f *Server) reply(h wire.Header, msg []byte) []byte {
	if f.OnRequest != nil {
		if reply, handled := f.OnRequest(h, msg); handled {
			return reply
		}
	}
	var out []byte
	f.Mu.Lock()
	view, reclaim := f.View, f.reclaim
	f.Mu.Unlock()
	switch h.Type {
	case wire.TypeHello:
		w := wire.Welcome{
			Session: 1, Incarnation: f.Incarnation, Lease: 2 * time.Second, Beat: 200 * time.Millisecond,
			Keepalive: time.Hour, Idle: 2 * time.Hour, ViewVersion: view, ReclaimVersion: reclaim,
			MaxValue: layout.MaxValueLen, MaxKey: layout.MaxKeyLen, RequestSize: messageBytes, ReplySize: messageBytes,
			Shards: max(f.Shards, 1), Regions: 2, ServerID: []byte("fake"),
		}
		f.Mu.Lock()
		change := f.Welcome
		f.Mu.Unlock()
		if change != nil {
			change(&w)
		}
		out = wire.AppendWelcome(nil, h.ID, w)
		wire.SetCredits(out, 8)
		return out
	case wire.TypeView:
		out = wire.AppendViewReply(nil, h.ID, wire.ViewReply{
			Incarnation: f.Incarnation, Seed: 42, Version: view, ReclaimVersion: reclaim,
			Shards: max(f.Shards, 1), RootOffset: 4096, ReclaimOffset: 8192, ReclaimEntries: RingEntries, Total: 2,
		}, []wire.Region{
			{ID: 0, Kind: uint8(layout.KindIndex), Base: 0, Length: IndexBytes, Addr: 0, RKey: 1},
			{ID: 1, Kind: uint8(layout.KindItems), Base: IndexBytes / 8, Length: ItemBytes, Addr: IndexBytes, RKey: 1},
		})
	case wire.TypePing:
		return wire.AppendPingReply(nil, h.ID, wire.PingReply{})
	case wire.TypePut:
		out = wire.AppendWriteReply(nil, wire.TypePut, h.ID, wire.WriteReply{Version: 1, Applied: true})
	default:
		out = wire.AppendError(nil, h.Type, h.ID, wire.StatusInternal, "not in this fake")
	}
	wire.SetCredits(out, 1)
	return out
}

// A Clock is the lease clock of a test.
type Clock struct{ nanos atomic.Int64 }

// NewClock is a clock that stands at one hour.
func NewClock() *Clock {
	c := new(Clock)
	c.nanos.Store(int64(time.Hour))
	return c
}

func (c *Clock) Now() int64              { return c.nanos.Load() }
func (c *Clock) Advance(d time.Duration) { c.nanos.Add(int64(d)) }
