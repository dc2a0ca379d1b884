package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/internal/load"
)

// dialLimit bounds how long a client may take to connect, and to learn who leads.
const dialLimit = 10 * time.Second

// open is how callers reach etcd: by one client, whose gRPC connections they share, or by one
// each. A client asks its endpoints in turn.
func open(ctx context.Context, t *jobs.Target, _ int) (jobs.Stores, func() error, error) {
	none := func() error { return nil }
	if t.System != "etcd" {
		return nil, none, fmt.Errorf("system %q is not for this worker", t.System)
	}
	endpoints := append([]string{t.Addr}, t.Others...)
	shared, err := dial(endpoints)
	if err != nil {
		return nil, none, err
	}
	if t.Etcd.AtLeader {
		leader, err := leaderOf(ctx, shared, endpoints)
		if err != nil {
			return nil, none, errors.Join(err, shared.Close())
		}
		endpoints = []string{leader}
		shared.SetEndpoints(leader)
	}
	if !t.Etcd.Many {
		return func(context.Context, int) (load.Store, error) {
			return &store{kv: shared, serializable: t.Etcd.Serializable}, nil
		}, shared.Close, nil
	}
	return func(_ context.Context, caller int) (load.Store, error) {
		// The callers begin at different members.
		first := caller % len(endpoints)
		own, err := dial(append(append([]string(nil), endpoints[first:]...), endpoints[:first]...))
		if err != nil {
			return nil, err
		}
		return &store{kv: own, end: own.Close, serializable: t.Etcd.Serializable}, nil
	}, shared.Close, nil
}

// dial makes a client of some endpoints. What its library would log is left out, because
// errors come back from its calls.
func dial(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: dialLimit, Logger: zap.NewNop()})
}

// A teller is as much of a client as tells of one member.
type teller interface {
	Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error)
}

// leaderOf finds the endpoint of the member that leads.
func leaderOf(ctx context.Context, c teller, endpoints []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	for _, endpoint := range endpoints {
		st, err := c.Status(ctx, endpoint)
		if err != nil {
			return "", fmt.Errorf("the status of etcd at %s: %w", endpoint, err)
		}
		if st.Leader != 0 && st.Leader == st.Header.MemberId {
			return endpoint, nil
		}
	}
	return "", fmt.Errorf("none of %d members of etcd says that it leads", len(endpoints))
}
