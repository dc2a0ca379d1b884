package client

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A view is the region table of one session: what layout needs to find things
// and what the fabric needs to READ them. rkeys come from nowhere else. It is
// immutable; a newer one replaces it.
type view struct {
	layout.View
	remote []rdma.RemoteAddr // of each region's first byte, by index in Regions

	_ [64]byte // a line of its own: what follows is written by every READ
	// under counts the batches that are posted under it and have not completed:
	// when it has been replaced and this is 0, nothing of it is used any more.
	under atomic.Int64
	// direct counts likewise the READs that their callers do themselves.
	direct [stripes]paddedCount
}

// inUse reports whether a READ goes by the view. Of one that has been replaced it
// stays false once it is: each count is looked at after the replacement, and who
// raises it later looks again and lets go.
func (v *view) inUse() bool {
	for i := range v.direct {
		if v.direct[i].n.Load() != 0 {
			return true
		}
	}
	return v.under.Load() != 0
}

// maxRegions bounds the table: 8 TiB in regions of 1 MiB would be more, but a
// server of this version has a few thousand at most.
const maxRegions = 1 << 16

// errNoRegion: the view does not have the place; a newer view may.
var errNoRegion = errors.New("place outside the known regions")

// errViewMoved: the table changed between two of its pages.
var errViewMoved = errors.New("region table changed while it was read")

// at names n bytes at a place for a READ.
func (v *view) at(p layout.Place, n int) (rdma.RemoteAddr, bool) {
	i, off, ok := v.Locate(p, n)
	if !ok {
		return rdma.RemoteAddr{}, false
	}
	r := v.remote[i]
	return rdma.RemoteAddr{Addr: r.Addr + off, RKey: r.RKey}, true
}

// fetchView asks for the whole region table, page by page, beginning again
// when it changes in between.
func (s *session) fetchView(p *patience) (*view, uint64, error) {
	for range 10 {
		v, reclaim, err := s.fetchViewOnce(p)
		if !errors.Is(err, errViewMoved) {
			return v, reclaim, err
		}
	}
	return nil, 0, fmt.Errorf("%w: the region table changes faster than it can be read", ErrUnavailable)
}

func (s *session) fetchViewOnce(p *patience) (*view, uint64, error) {
	var v *view
	var all []wire.Region
	var reclaim uint64
	for total := uint32(1); uint32(len(all)) < total; {
		sl, err := s.open(p)
		if err != nil {
			return nil, 0, err
		}
		r, err := sl.call(p, wire.AppendViewRequest(sl.buf[:0], sl.id(), wire.ViewRequest{From: uint32(len(all))}))
		if err != nil {
			return nil, 0, err
		}
		m, err := wire.ParseViewReply(r.body)
		if err != nil {
			return nil, 0, r.malformed(err)
		}
		if v == nil {
			v = &view{View: layout.View{
				Incarnation: m.Incarnation, Seed: m.Seed, Version: m.Version, Shards: m.Shards,
				RootOffset: m.RootOffset, ReclaimOffset: m.ReclaimOffset, ReclaimEntries: m.ReclaimEntries,
			}}
			total, reclaim = m.Total, m.ReclaimVersion
		}
		switch {
		case m.Incarnation != s.incarnation || m.Shards != s.welcome.Shards:
			return nil, 0, r.malformed(errors.New("view of another store"))
		case s.sendOnly && m.Total == 0:
			defer r.done()
			return s.emptyView(&m)
		case m.Total > maxRegions || m.Count() == 0 || int(m.From) != len(all):
			return nil, 0, r.malformed(fmt.Errorf("%d of %d regions from %d", m.Count(), m.Total, m.From))
		case m.Version != v.Version || m.Total != total:
			r.done()
			return nil, 0, errViewMoved
		}
		for i := range m.Count() {
			all = append(all, m.Region(i))
		}
		r.done()
	}
	if err := v.fill(all); err != nil {
		err = fmt.Errorf("%w: %v", ErrProtocol, err)
		s.fail(err)
		return nil, 0, err
	}
	return v, reclaim, nil
}

// fill puts the regions in order and checks all that layout relies on.
func (v *view) fill(all []wire.Region) error {
	slices.SortFunc(all, func(a, b wire.Region) int {
		switch {
		case a.Base < b.Base:
			return -1
		case a.Base > b.Base:
			return 1
		}
		return 0
	})
	for _, r := range all {
		if r.Addr+r.Length < r.Addr {
			return fmt.Errorf("region %d ends beyond the address space", r.ID)
		}
		v.Regions = append(v.Regions, layout.Region{
			ID: r.ID, Kind: layout.RegionKind(r.Kind), Base: layout.Place(r.Base), Length: r.Length,
		})
		v.remote = append(v.remote, rdma.RemoteAddr{Addr: r.Addr, RKey: r.RKey})
	}
	return v.Check()
}

// refreshView replaces the view if the server has a newer one.
func (s *session) refreshView(p *patience) error {
	v, _, err := s.fetchView(p)
	if err != nil {
		return err
	}
	s.takeView(v)
	return nil
}
