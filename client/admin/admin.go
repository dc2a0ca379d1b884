// Package admin is what tools, monitors and operators ask of a store: single nodes, the
// cluster, the memory of a server. Programs that keep data need none of it: what they do
// is in package client.
//
//	c, err := client.Dial(ctx, cfg)
//	…
//	info, err := admin.Of(c).Cluster(ctx)
//
// An Admin stands on the connections of its Client and has none of its own. Admin's methods
// are about the whole store; a Node is one server of it, and a server that is the only one is
// the node with the id "".
//
//	admin.go    the calls to all nodes: Server, PingRead, Stats, GetPath
//	node.go     one node, how nodes are found, what the operator of a node asks of it
//	memory.go   the memory of a node: its region table, and bytes as they stand there
//	cluster.go  the cluster as its nodes tell of it
//	types.go    what the calls return
//	birth.go    the birth of a cluster's shard map
//	groups.go   the groups of replicas, from what all nodes say of theirs
//	change.go   nodes that come and go: Change, Tasks, Cancel, Pause, Resume
//	newcomer.go a node that comes: may it, and the map for it
//	seat.go     how the node is found that answers for the cluster
package admin

import (
	"context"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/parts"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// An Admin is the operator's view of the store that a Client uses. Its methods are safe for
// concurrent use and obey their context as those of the Client do; their errors are the same,
// *client.Error.
type Admin struct{ rt *route.Router }

// Of returns the operator's view of the store that c uses. It opens no connection; closing c
// ends it.
func Of(c *client.Client) *Admin { return &Admin{(*route.Router)(c)} }

// fail makes the *client.Error of a call that came to no server.
func (a *Admin) fail(op string, key []byte, err error) error { return a.rt.Fail(op, key, err) }

// Server describes the session in force; the zero value if there is none. In a cluster it is
// one of them: Nodes has each.
func (a *Admin) Server() ServerInfo {
	for _, p := range a.rt.Known() {
		if info := p.Info(); info.Address != "" {
			return info
		}
	}
	return ServerInfo{}
}

// PingRead READs the server's beat, one-sidedly, and returns how long that took: the way to the
// memory and back, in which the server's CPU takes no part. It does not show that the memory may
// be believed. In a cluster each node that owns keys is asked, side by side, and the longest time
// counts; the error is then a *client.PartialError. It fails with client.ErrUnsupported for a
// tenant without one-sided access, because there is no memory that it may READ.
func (a *Admin) PingRead(ctx context.Context) (time.Duration, error) {
	return a.rt.Slowest(ctx, "ping-read", func(p *peer.Peer) (time.Duration, error) { return pingRead(ctx, p) })
}

func pingRead(ctx context.Context, p *peer.Peer) (took time.Duration, err error) {
	pt := p.Begin(ctx)
	err = p.Ask(&pt, "ping-read", nil, func(s *session.Session) (err error) {
		took, err = s.PingRead(&pt)
		return err
	})
	return took, err
}

// maxStats bounds the server's counters, bytes of JSON.
const maxStats = 4 << 20

// Stats returns the counters of the client and of the server. In a cluster each node that owns
// keys is asked, side by side; if some do not answer, the error is a *client.PartialError that
// names them, beside the stats of the others.
func (a *Admin) Stats(ctx context.Context) (Stats, error) {
	if p := a.rt.Only(); p != nil {
		return statsOf(ctx, p)
	}
	var mu sync.Mutex
	nodes := make(map[string]Stats)
	err := a.rt.Each(ctx, "stats", func(p *peer.Peer) error {
		st, err := statsOf(ctx, p)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			nodes[p.Node] = st
		}
		return err
	})
	return Stats{Client: a.rt.Counters(), Nodes: nodes}, err
}

func statsOf(ctx context.Context, p *peer.Peer) (Stats, error) {
	pt := p.Begin(ctx)
	if err := pt.Enter(p.StatsTurn, 1); err != nil {
		return Stats{Client: p.Counters(), Session: p.Info()}, p.Fail("stats", nil, "", err)
	}
	defer p.StatsTurn.Leave(1)
	var text []byte
	err := p.Ask(&pt, "stats", nil, func(s *session.Session) (err error) {
		text, err = s.Document(&pt, wire.DocumentStats, nil, maxStats)
		return err
	})
	return Stats{Client: p.Counters(), Session: p.Info(), Server: text}, err
}

// GetPath is Client.GetInto that also tells how the get was answered, for programs that measure.
// A key that does not exist has a path as well, beside client.ErrNotFound. It allocates nothing
// where GetInto does not. bound is that of client.ReadBounded; 0: none.
func (a *Admin) GetPath(ctx context.Context, key, dst []byte, bound time.Duration) ([]byte, Path, error) {
	q := read.Query{N: -1, Dst: dst[:0]}
	if err := read.Bounded(ctx, a.rt, "get", key, &q, bound); err != nil {
		return nil, q.Path, err
	}
	if q.Head != nil {
		v, err := parts.Get(ctx, a.rt, "get", key, parts.Query{N: -1, Dst: q.Dst, Head: q.Head, Info: q.Info})
		return v.Dst, base.PathLarge, err
	}
	return q.Dst, q.Path, nil
}
