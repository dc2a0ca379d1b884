package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server"
)

// clusterConfig is what makes the server a node of a cluster; nil if it has none.
// The keys are read here and not by the server, which must not know where they are
// kept; where they come from a file it is given the function that reads them
// again.
func clusterConfig(c *config.Loaded) (*server.ClusterConfig, error) {
	if !c.Clustered() {
		return nil, nil
	}
	keys, err := c.GossipKeys()
	if err != nil {
		return nil, err
	}
	out := &server.ClusterConfig{
		NodeID: c.NodeID, Name: c.ClusterName(),
		Bind: c.Gossip.Bind, Advertise: c.Gossip.Advertise, Join: c.Gossip.Join,
		Keys: keys, Insecure: c.Insecure, Profile: c.Gossip.Profile, Hosts: c.Advertise, HoldLevel: c.Cluster.HoldLevel,
	}
	// Keys of the environment cannot change while the process runs.
	if c.Gossip.KeyFile != "" {
		out.ReloadKeys = c.GossipKeys
	}
	for _, text := range c.Gossip.Allow {
		p, err := netip.ParsePrefix(text)
		if err != nil { // internal/config has looked at it
			return nil, fmt.Errorf("gossip.allow: %w", err)
		}
		out.Allow = append(out.Allow, p)
	}
	return out, nil
}

// tenants are those of tenants_file; none, and no error, if there is no such file
// configured.
func (a *app) tenants() ([]server.Tenant, error) {
	list, err := a.cfg.Tenants(a.env)
	if err != nil {
		return nil, err
	}
	var out []server.Tenant
	for i := range list {
		t := &list[i]
		out = append(out, server.Tenant{
			Name: t.Name, Secret: secret.New(t.Secret()), Space: t.Space, MemoryLimit: uint64(t.MemoryLimit),
			ReadOnly: t.ReadOnly, Prefix: t.Prefix, SendOnly: t.SendOnly, Admin: t.Admin,
			MaxSessions: t.MaxSessions, MaxRequests: t.MaxRequests, MaxInflightBytes: int64(t.MaxInflightBytes),
		})
	}
	return out, nil
}

// reload reads again what SIGHUP is for: tenants and gossip keys. If a file cannot
// be read everything stays as it is, and the log says so: a mistake in a file must
// not take rights from sessions, and still less give any. Each part is read
// whether the other succeeds or not.
func (a *app) reload(ctx context.Context, srv *server.Server, log *slog.Logger) {
	log.Info("reading tenants and gossip keys again (SIGHUP)")
	// Which file is read was decided at the start: SIGHUP reads no configuration.
	var errs []error
	if a.cfg.TenantsFile != "" {
		list, err := a.tenants()
		if err == nil {
			err = srv.SetTenants(ctx, list)
		}
		errs = append(errs, err)
	}
	if a.cfg.Gossip.KeyFile != "" {
		errs = append(errs, srv.ReloadGossipKeys())
	}
	if err := errors.Join(errs...); err != nil {
		log.Error("not everything could be read again; what failed is as before", "err", err)
	}
}
