package session

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A View is the region table of one session: what layout needs to find things
// and what the fabric needs to READ them. rkeys come from nowhere else. It is
// immutable; a newer one replaces it.
type View struct {
	layout.View
	Remote []rdma.RemoteAddr // of each region's first byte, by index in Regions

	_ [64]byte // a line of its own: what follows is written by every READ
	// under counts the batches that are posted under it and have not completed:
	// when it has been replaced and this is 0, nothing of it is used any more.
	under atomic.Int64
	// direct counts likewise the READs that their callers do themselves, and those by
	// the short way.
	direct [base.Stripes]paddedCount
}

// InUse reports whether a READ goes by the view. Of one that has been replaced it
// stays false once it is: each count is looked at after the replacement, and a READ
// that raises it later looks again and lets go.
func (v *View) InUse() bool {
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

// errViewMoved: the table changed between two of its pages.
var errViewMoved = errors.New("region table changed while it was read")

// at names n bytes at a place for a READ.
func (v *View) at(p layout.Place, n int) (rdma.RemoteAddr, bool) {
	i, off, ok := v.Locate(p, n)
	if !ok {
		return rdma.RemoteAddr{}, false
	}
	r := v.Remote[i]
	return rdma.RemoteAddr{Addr: r.Addr + off, RKey: r.RKey}, true
}

// fetchView asks for the whole region table, page by page, beginning again
// when it changes in between.
func (s *Session) fetchView(p *base.Limit) (*View, uint64, error) {
	for range 10 {
		v, reclaim, err := fetchViewOnce(s, p)
		if !errors.Is(err, errViewMoved) {
			return v, reclaim, err
		}
	}
	return nil, 0, fmt.Errorf("%w: the region table changes faster than it can be read", base.ErrUnavailable)
}

func fetchViewOnce(s *Session, p *base.Limit) (*View, uint64, error) {
	var v *View
	var all []wire.Region
	var reclaim uint64
	for total := uint32(1); uint32(len(all)) < total; {
		sl, err := s.Open(p)
		if err != nil {
			return nil, 0, err
		}
		r, err := sl.Call(p, wire.AppendViewRequest(sl.Buf[:0], sl.ID(), wire.ViewRequest{From: uint32(len(all))}))
		if err != nil {
			return nil, 0, err
		}
		m, err := wire.ParseViewReply(r.Body)
		if err != nil {
			return nil, 0, r.Malformed(err)
		}
		if v == nil {
			v = &View{View: layout.View{
				Incarnation: m.Incarnation, Seed: m.Seed, Version: m.Version, Shards: m.Shards,
				RootOffset: m.RootOffset, ReclaimOffset: m.ReclaimOffset, ReclaimEntries: m.ReclaimEntries,
			}}
			total, reclaim = m.Total, m.ReclaimVersion
		}
		switch {
		case m.Incarnation != s.Incarnation || m.Shards != s.Welcome.Shards:
			return nil, 0, r.Malformed(errors.New("view of another store"))
		case s.SendOnly && m.Total == 0:
			defer r.Done()
			return emptyView(&m)
		case m.Total > maxRegions || m.Count() == 0 || int(m.From) != len(all):
			return nil, 0, r.Malformed(fmt.Errorf("%d of %d regions from %d", m.Count(), m.Total, m.From))
		case m.Version != v.Version || m.Total != total:
			r.Done()
			return nil, 0, errViewMoved
		}
		for i := range m.Count() {
			all = append(all, m.Region(i))
		}
		r.Done()
	}
	if err := v.fill(all); err != nil {
		err = fmt.Errorf("%w: %v", base.ErrProtocol, err)
		s.Fail(err)
		return nil, 0, err
	}
	return v, reclaim, nil
}

// fill puts the regions in order and checks all that layout relies on.
func (v *View) fill(all []wire.Region) error {
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
		v.Remote = append(v.Remote, rdma.RemoteAddr{Addr: r.Addr, RKey: r.RKey})
	}
	return v.Check()
}

// RefreshView replaces the view if the server has a newer one.
func (s *Session) RefreshView(p *base.Limit) error {
	v, _, err := s.fetchView(p)
	if err != nil {
		return err
	}
	s.TakeView(v)
	return nil
}

// emptyView is the region table of such a session.
func emptyView(m *wire.ViewReply) (*View, uint64, error) {
	return &View{View: layout.View{Incarnation: m.Incarnation, Version: m.Version, Shards: m.Shards}}, m.ReclaimVersion, nil
}

// A paddedCount has a line of its own.
type paddedCount struct {
	n atomic.Int64
	_ [56]byte
}
