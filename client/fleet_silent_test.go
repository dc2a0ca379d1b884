package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// Nodes that do not say what they see: calls that must know end in time, with an
// error of this package.
func TestFleetSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Cluster(t, 1, false)
		var silent atomic.Bool
		nodes[0].OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			if h.Type == wire.TypeDocument && silent.Load() {
				return []byte{}, true
			}
			return nodes[0].Answer(h, msg)
		}
		c := dialFakes(t, nodes, func(cfg *client.Config) { cfg.Timeout, cfg.DialTimeout = 400*time.Millisecond, 200*time.Millisecond })
		silent.Store(true)
		for name, call := range map[string]func(context.Context) error{
			"cluster":  func(ctx context.Context) error { return second(admin.Of(c).Cluster(ctx)) },
			"ping":     func(ctx context.Context) error { return second(c.Ping(ctx)) },
			"stats":    func(ctx context.Context) error { return second(admin.Of(c).Stats(ctx)) },
			"position": func(ctx context.Context) error { return second(c.Position(ctx)) },
			"init": func(ctx context.Context) error {
				return second(admin.Of(c).ClusterInit(ctx, []admin.NodeWeight{{ID: "n1"}}))
			},
			"scan": func(ctx context.Context) error {
				for _, err := range c.Scan(ctx, client.ScanOptions{}) {
					return err
				}
				return nil
			},
		} {
			for _, limit := range []time.Duration{0, 150 * time.Millisecond} {
				ctx, cancel := context.WithCancel(t.Context())
				if limit != 0 {
					ctx, cancel = context.WithTimeout(ctx, limit)
				}
				err := call(ctx)
				cancel()
				if e := (*client.Error)(nil); !errors.As(err, &e) || !errors.Is(err, client.ErrTimeout) && !errors.Is(err, client.ErrUnavailable) {
					t.Errorf("%s, with %v: %v", name, limit, err)
				}
			}
		}
	})
}
