package admin

import (
	"context"
	"fmt"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A RegionKey is what the READs of a session name a region with. rkeys are
// capabilities: a program that has them can read the region over this session,
// as long as it lasts, and over no other.
type RegionKey struct {
	Region uint32
	Addr   uint64 // of its first byte, as the fabric has it
	RKey   uint32
}

// RegionKeys returns the regions of the session in force with their keys, for
// tools that compare them with what gossip has told of the node.
func (n *Node) RegionKeys(ctx context.Context) ([]RegionKey, error) {
	p := n.p.Begin(ctx)
	s, err := n.p.Session(&p)
	if err != nil {
		return nil, n.p.Fail("region-keys", nil, "", err)
	}
	v := s.View()
	keys := make([]RegionKey, 0, len(v.Regions))
	for i, r := range v.Regions {
		keys = append(keys, RegionKey{Region: r.ID, Addr: v.Remote[i].Addr, RKey: v.Remote[i].RKey})
	}
	return keys, nil
}

// View returns the region table of the session in force, a copy: what ReadRegion can read.
func (n *Node) View(ctx context.Context) (*layout.View, error) {
	p := n.p.Begin(ctx)
	s, err := n.p.Session(&p)
	if err != nil {
		return nil, n.p.Fail("view", nil, "", err)
	}
	return s.View().Clone(), nil
}

// ReadRegion READs len(dst) bytes of a region from offset off on, one-sidedly; both must be
// multiples of 8. What it returns is what stood in the server's memory word by word, at moments
// of the READ: it is for looking, and carries none of the promises of a get. It fails with
// client.ErrRange if the region or the bytes do not exist.
func (n *Node) ReadRegion(ctx context.Context, region uint32, off uint64, dst []byte) error {
	p := n.p.Begin(ctx)
	return n.p.Ask(&p, "read-region", nil, func(s *session.Session) error {
		v := s.View()
		for _, r := range v.Regions {
			if r.ID != region {
				continue
			}
			if off%8 != 0 || len(dst)%8 != 0 || off > r.Length || uint64(len(dst)) > r.Length-off {
				return fmt.Errorf("%w: %d bytes at %d of a region of %d; both must be multiples of 8",
					client.ErrRange, len(dst), off, r.Length)
			}
			return readRaw(s, &p, v, r.Base+layout.PlaceOfByte(off), dst)
		}
		return fmt.Errorf("%w: no region %d", client.ErrRange, region)
	})
}

func readRaw(s *session.Session, p *base.Limit, v *session.View, place layout.Place, dst []byte) error {
	for len(dst) > 0 {
		n := min(len(dst), base.WindowBytes)
		b := s.NewReads(v)
		if _, err := b.Add(place, n); err != nil {
			b.Release()
			return err
		}
		mine, err := b.Run(p)
		if !mine {
			return err
		}
		if err == nil {
			copy(dst, b.Bytes(0))
		}
		b.Release()
		if err != nil {
			return err
		}
		dst, place = dst[n:], place+layout.PlaceOfByte(uint64(n))
	}
	return nil
}
