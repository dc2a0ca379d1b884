package client

import "context"

// A RegionKey is what the READs of a session name a region with. rkeys are
// capabilities: who may see this may read the region as long as the session
// lasts, and nobody else can use it.
type RegionKey struct {
	Region uint32
	Addr   uint64 // of its first byte, as the fabric has it
	RKey   uint32
}

// RegionKeys returns the regions of the session in force with their keys, for
// tools that compare them with what gossip has told of the node.
func (n *Node) RegionKeys(ctx context.Context) ([]RegionKey, error) {
	p := n.p.begin(ctx)
	s, err := n.p.session(&p)
	if err != nil {
		return nil, n.p.fail("region-keys", nil, "", err)
	}
	v := s.view.Load()
	keys := make([]RegionKey, 0, len(v.Regions))
	for i, r := range v.Regions {
		keys = append(keys, RegionKey{Region: r.ID, Addr: v.remote[i].Addr, RKey: v.remote[i].RKey})
	}
	return keys, nil
}
