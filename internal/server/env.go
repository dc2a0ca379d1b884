package server

import (
	"context"
	"encoding/json"

	"github.com/rdmakv/rdmakv/internal/server/work"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// handleEnv is what the handlers of the node, or of a space of it, use of it. It is
// called when the parts are open and nobody is served yet.
func handleEnv(srv *Server) Env {
	cfg, node := &srv.cfg, srv.root
	makers := node.makers
	if srv != node {
		own := *makers
		own[wire.DocumentStats] = statsOf(srv)
		makers = &own
	}
	return Env{
		Store: srv.store, Shards: srv.shards, Regions: srv.regions, Followers: &srv.turnover.Followers, Staging: srv.staging,
		Sessions: srv.sessions, Owned: srv.owned, Shared: srv.shared, Fence: srv.fence,
		Clock: srv.clock, Counters: srv.met, Bounds: srv.bounds, Makers: makers,
		Gets: srv.pool, Scans: srv.scans, Clusters: node.clusters, Admins: node.admins,
		Lease: cfg.Lease, LeaseOff: cfg.LeaseOff, MaxPoll: cfg.MaxPoll, MaxWatches: cfg.MaxWatches, TenantWatches: srv.tenantWatches(),
	}
}

// tenantWatches bounds the waiting watches of one tenant: half of the places in the
// node's own space, which others share, and all of them in a space of his own.
func (srv *Server) tenantWatches() int {
	if srv.root == srv {
		return max(1, srv.cfg.MaxWatches/2)
	}
	return srv.cfg.MaxWatches
}

// newMakers are what the node makes documents with. The statistics are those of its own
// space.
func newMakers(srv *Server) *Makers {
	// ofAdmin is what the operator asks: a name, answered with a JSON text.
	ofAdmin := func(do func(by Asker, name string) (any, error)) Maker {
		return func(_ context.Context, by Asker, argument []byte) ([]byte, error) {
			answer, err := do(by, string(argument))
			if err != nil {
				return nil, err
			}
			return json.Marshal(answer)
		}
	}
	ofName := func(do func(name string) (any, error)) Maker {
		return ofAdmin(func(_ Asker, name string) (any, error) { return do(name) })
	}
	ofCluster := func(text func() ([]byte, error)) Maker {
		return func(context.Context, Asker, []byte) ([]byte, error) { return text() }
	}
	ofStep := func(step wire.DocumentKind) Maker {
		return func(ctx context.Context, by Asker, argument []byte) ([]byte, error) {
			return srv.member.Change(ctx, by.Peer, step, argument)
		}
	}
	return &Makers{
		wire.DocumentStats:   statsOf(srv),
		wire.DocumentView:    ofCluster(srv.member.View),
		wire.DocumentMap:     ofCluster(srv.member.Map),
		wire.DocumentPromise: ofCluster(srv.member.Promise),
		wire.MapPrepare:      ofStep(wire.MapPrepare),
		wire.MapCommit:       ofStep(wire.MapCommit),
		wire.MapAbandon:      ofStep(wire.MapAbandon),
		wire.AdminRotate:     ofAdmin(srv.adminRotate),
		wire.AdminRevoke:     ofName(func(name string) (any, error) { return srv.Revoke(name) }),
		wire.AdminAllow:      ofName(func(name string) (any, error) { return srv.Allow(name) }),
		wire.AdminStatus:     ofName(sources{srv}.status),
		wire.AdminGossipKeys: ofName(srv.member.ChangeKeys),
		wire.AdminLimits:     ofName(func(string) (any, error) { return srv.Limits(), nil }),
		wire.AdminTenants:    ofName(func(string) (any, error) { return srv.Tenants(), nil }),
	}
}

// statsOf makes the statistics of the node, or of a space.
func statsOf(srv *Server) Maker {
	return func(_ context.Context, by Asker, _ []byte) ([]byte, error) { return statsJSON(srv, by.Login) }
}

// pools are the workers of a node, or of a space.
type pools struct {
	pool     *work.Pool // gets, and writes that ask the disk
	scans    *work.Pool // what takes long by nature
	clusters *work.Pool // of the node alone, as is the next
	admins   *work.Pool
}

// openPools starts the workers of the node, or of a space. The main login is the
// operator's, or everybody's on a node without tenants: it may use all processors, and all
// workers of the gets. The others may not.
func (srv *Server) openPools() {
	n := srv.cfg.Workers
	srv.pool = work.New(work.Gets, n, n, max(1, n-n/4))
	// Scans take the time of processors more than that of disks. So that puts and
	// gets of others have some, one tenant scans on half of the processors at most.
	n = max(2, n/4)
	srv.scans = work.New(work.Scans, n, max(1, n/2), max(1, n/4))
	if srv.root == srv {
		srv.clusters = work.New(work.Cluster, clusterWorkers, clusterWorkers, clusterWorkers-1)
		srv.admins = work.New(work.Admin, adminWorkers, adminWorkers-1, adminWorkers/2)
	}
}

// closePools ends the workers.
func (srv *Server) closePools() {
	for _, w := range [...]*work.Pool{srv.pool, srv.scans, srv.clusters, srv.admins} {
		if w != nil {
			w.Close()
		}
	}
}

const (
	clusterWorkers = 2 // what they answer lies ready
	adminWorkers   = 4 // a revocation may wait for sessions, a promise for the disk
)
