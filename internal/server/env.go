package server

import (
	"context"
	"encoding/json"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/groups"
	"github.com/rdmakv/rdmakv/internal/server/handle"
	"github.com/rdmakv/rdmakv/internal/server/space"
	"github.com/rdmakv/rdmakv/internal/server/telemetry"
	"github.com/rdmakv/rdmakv/internal/server/work"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// handleEnv is what the handlers of a space use of it and of the node. It is called when
// the parts of the space are open and nobody is served yet. tenantWatches bounds the
// waiting watches of one tenant.
func handleEnv(srv *Server, sp *space.Space, cfg *Config, makers *handle.Makers, tenantWatches int) handle.Env {
	return handle.Env{
		Store: sp.Store, Shards: sp.Shards, Regions: sp.Regions, Followers: &sp.Turnover.Followers, Staging: sp.Staging,
		Sessions: sp.Sessions, Owned: sp.Owned, Shared: sp.Shared, Fence: sp.Fence,
		Clock: sp.Clock, Counters: sp.Counters, Bounds: sp.Bounds, Makers: makers,
		Gets: sp.Gets, Scans: sp.Scans, Clusters: srv.clusters, Admins: srv.admins,
		Lease: cfg.Lease, LeaseOff: cfg.LeaseOff, MaxPoll: cfg.MaxPoll, MaxWatches: cfg.MaxWatches, TenantWatches: tenantWatches,
	}
}

// tenantHandlers makes the handlers of a tenant's space: the statistics are its own, and
// all places for waiting watches too.
func (srv *Server) tenantHandlers(sp *space.Space, cfg *Config) space.Handlers {
	makers := *srv.makers
	makers[wire.DocumentStats] = makerOfStats(srv, func() *telemetry.Space { return sources{srv}.space(sp) })
	return handle.New(handleEnv(srv, sp, cfg, &makers, cfg.MaxWatches))
}

// mainHandlers makes the handlers of the main space, which tenants share: one of them may
// have half of the places for waiting watches.
func (srv *Server) mainHandlers(sp *space.Space, cfg *Config) space.Handlers {
	env := handleEnv(srv, sp, cfg, srv.makers, max(1, cfg.MaxWatches/2))
	env.LeaderOf = srv.groups.NodeOf
	return handle.New(env)
}

// makerOfStats makes the statistics that the clients of a space are told.
func makerOfStats(srv *Server, of func() *telemetry.Space) handle.Maker {
	return func(_ context.Context, by handle.Asker, _ []byte) ([]byte, error) {
		return statsJSON(srv, of, by.Login)
	}
}

// newMakers are what the node makes documents with. The statistics are those of its main
// space.
func newMakers(srv *Server) *handle.Makers {
	// ofAdmin is what the operator asks: a name, answered with a JSON text.
	ofAdmin := func(do func(by handle.Asker, name string) (any, error)) handle.Maker {
		return func(_ context.Context, by handle.Asker, argument []byte) ([]byte, error) {
			answer, err := do(by, string(argument))
			if err != nil {
				return nil, err
			}
			return json.Marshal(answer)
		}
	}
	ofName := func(do func(name string) (any, error)) handle.Maker {
		return ofAdmin(func(_ handle.Asker, name string) (any, error) { return do(name) })
	}
	ofCluster := func(text func() ([]byte, error)) handle.Maker {
		return func(context.Context, handle.Asker, []byte) ([]byte, error) { return text() }
	}
	ofStep := func(step wire.DocumentKind) handle.Maker {
		return func(ctx context.Context, by handle.Asker, argument []byte) ([]byte, error) {
			return srv.member.Change(ctx, by.Peer, step, argument)
		}
	}
	return &handle.Makers{
		wire.DocumentStats:   makerOfStats(srv, sources{srv}.Main),
		wire.DocumentView:    ofCluster(srv.member.View),
		wire.DocumentMap:     ofCluster(srv.member.Map),
		wire.DocumentPromise: ofCluster(srv.member.Promise),
		wire.MapPrepare:      ofStep(wire.MapPrepare),
		wire.MapCommit:       ofStep(wire.MapCommit),
		wire.MapAbandon:      ofStep(wire.MapAbandon),
		wire.MapFollow:       ofStep(wire.MapFollow),
		wire.AdminRotate:     ofAdmin(srv.adminRotate),
		wire.AdminRevoke:     ofName(func(name string) (any, error) { return srv.Revoke(name) }),
		wire.AdminAllow:      ofName(func(name string) (any, error) { return srv.Allow(name) }),
		wire.AdminStatus:     ofName(sources{srv}.status),
		wire.AdminGossipKeys: ofName(srv.member.ChangeKeys),
		wire.AdminLimits:     ofName(func(string) (any, error) { return srv.Limits(), nil }),
		wire.AdminTenants:    ofName(func(string) (any, error) { return srv.Tenants(), nil }),
		wire.AdminCheck: func(ctx context.Context, _ handle.Asker, argument []byte) ([]byte, error) {
			return srv.groups.Check(ctx, argument)
		},
		wire.AdminCopy: func(ctx context.Context, by handle.Asker, argument []byte) ([]byte, error) {
			if by.Login.Space != auth.MainSpace { // an administrator may do what he likes with a node, and reads no keys of other spaces
				return nil, base.Refuse(wire.StatusDenied, "a copy has the keys of the node's own space, and tenant %s is of space %s", by.Login.Name, by.Login.Space)
			}
			return groups.Copy(ctx, srv.groups, argument)
		},
		wire.AdminCluster: func(ctx context.Context, _ handle.Asker, argument []byte) ([]byte, error) {
			return srv.change.Operate(ctx, argument)
		},
	}
}

// nodePools are the workers of the node, for requests of all its spaces. No scan can fill
// them.
type nodePools struct {
	clusters *work.Pool
	admins   *work.Pool
}

const (
	clusterWorkers = 2 // what they answer lies ready
	adminWorkers   = 4 // a revocation may wait for sessions, a promise for the disk
)

func (p *nodePools) open() {
	p.clusters = work.New(work.Cluster, clusterWorkers, clusterWorkers, clusterWorkers-1)
	p.admins = work.New(work.Admin, adminWorkers, adminWorkers-1, adminWorkers/2)
}

func (p *nodePools) close() { closePools(p.clusters, p.admins) }

func closePools(list ...*work.Pool) {
	for _, w := range list {
		if w != nil { // else what opens it has failed
			w.Close()
		}
	}
}
