package warm

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/store/index"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// A Found is memory that a life before has left and that this one can use.
type Found struct {
	Life
	Regions []region.LeftRegion
	Bytes   uint64 // of all regions
}

// Look looks at what was left. table is what the table of this life is made of, but for seed and regions. After an error, which says why in one line, none of it
// can be used; it is ErrNoLife if nothing was left.
func Look(k region.Keeper, table region.Config, fingerprint uint64) (*Found, error) {
	left := k.Left()
	l, err := ReadLife(k.Record())
	switch {
	case err != nil && len(left) == 0:
		return nil, ErrNoLife
	case err != nil:
		return nil, errors.New("its record is damaged, or was written by a program with another format")
	case len(left) == 0:
		return nil, ErrNoLife
	case l.Fingerprint != fingerprint:
		return nil, errors.New("it was written under another configuration (mode, shards, secret)")
	case l.Shards != table.Shards:
		return nil, fmt.Errorf("it has %d shards, this node %d", l.Shards, table.Shards)
	}
	table.Seed = l.Seed
	f := &Found{Life: l}
	if f.Regions, err = table.CheckLeft(left, func(inc uint64) bool { return slices.Contains(l.Incarnations, inc) }); err != nil {
		return nil, err
	}
	for _, r := range f.Regions {
		f.Bytes += r.Length
	}
	return f, nil
}

// Stats says what became of memory that was left.
type Stats struct {
	Bytes    uint64        // of the regions that were taken over
	Slots    uint64        // that led to items of the life before
	Refused  uint64        // slots that could not be right
	Segments uint64        // entries of directories that lead to no segment
	Believed uint64        // items
	Dropped  uint64        // items that were not live, or did not verify
	Took     time.Duration // until all were believed; 0: that is not over
}

// Lost is more than 0 if there may be items to which no slot leads any more.
func (s Stats) Lost() uint64 { return s.Refused + s.Segments }

// Adopt makes the shards over the regions that were taken over, which the table of m has. Nothing else is done in the memory meanwhile. An error
// is one of memory.
func Adopt(m *shard.Memory, f *Found, none layout.Version) ([]*shard.Shard, Stats, error) {
	m.Slabs.Adopt(f.Regions)
	adopted := make([]*index.Adopted, m.Shards)
	shards := make([]*shard.Shard, m.Shards)
	stats := make([]index.AdoptStats, m.Shards)
	// First all shards claim their memory, then those that have lost some get other memory.
	each(m.Shards, func(i int) {
		adopted[i], stats[i] = index.Adopt(m.Table, m.Reclaim, uint16(i), m.HashOf, m.Slabs.Claim)
	})
	m.Slabs.Settle()
	st := Stats{Bytes: f.Bytes}
	for i := range shards {
		sh, err := shard.Adopted(uint16(i), m, none, adopted[i])
		if err != nil {
			return nil, Stats{}, err
		}
		shards[i] = sh
		st.Slots += uint64(stats[i].Slots)
		st.Refused += uint64(stats[i].Refused)
		st.Segments += uint64(stats[i].Lost)
	}
	return shards, st, nil
}

// each calls f for 0 to n-1, on all processors.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// Pass believes or drops all items of the lives before, on all processors, and ends when that is done or the store's life is over.
func Pass(m *shard.Memory, shards []*shard.Shard, life *base.Life) (done bool) {
	var left atomic.Int64
	left.Store(int64(len(shards)))
	believers := sync.Pool{New: func() any { return new(shard.Believer) }}
	each(len(shards), func(i int) {
		b := believers.Get().(*shard.Believer)
		defer believers.Put(b)
		if b.All(shards[i], life.Over) {
			left.Add(-1)
		}
	})
	if left.Load() > 0 {
		return false
	}
	m.Leave(nil)
	return true
}
