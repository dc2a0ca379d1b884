package server

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestDeviceThatCannotRegister: where the memory that clients READ cannot be
// registered with a device, as without enough locked memory, the node starts
// without it if its listener may be missed, whichever region it is that fails.
func TestDeviceThatCannotRegister(t *testing.T) {
	memlock := errors.New("no memlock")
	for _, tc := range []struct {
		name     string
		good     int32 // regions that can be registered
		optional bool
		other    bool
		devices  string // that serve; empty: none
	}{
		{"must be had", 0, false, false, ""},
		{"may be missed", 0, true, false, "cards/left"},
		{"has a substitute", 0, true, true, "cards/left iwarp/iwarp0"},
		{"may be missed, has some", 1, true, false, "cards/left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			cfg := testConfig()
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			cfg.Shards, cfg.IndexRegionSize = 256, 1<<20 // whose segments take two regions
			left, right := twoCards(&cfg)
			var asked atomic.Int32
			right.atRegister(func(int) error {
				if asked.Add(1) > tc.good {
					return memlock
				}
				return nil
			})
			cfg.Listeners[1].Optional = tc.optional
			if tc.other {
				cfg.Listeners[1].Else = &Listener{Fabric: iwarp.New(iwarp.Options{}), Addr: "127.0.0.2:0"}
			}
			srv, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = srv.Start(t.Context())
			if tc.devices == "" {
				if !errors.Is(err, memlock) || left.open.Load() != 0 || right.open.Load() != 0 {
					t.Errorf("started: %v; %d and %d devices are open", err, left.open.Load(), right.open.Load())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(srv.Devices(), " "); got != tc.devices {
				t.Errorf("serves on %s, want %s", got, tc.devices)
			}
			if right.slabs.Load() != 0 || right.open.Load() != 0 {
				t.Errorf("the device left out has %d regions, %d are open", right.slabs.Load(), right.open.Load())
			}
			for _, addr := range srv.Addrs() {
				p := dial(t, srv, peerOptions{via: addr.String()})
				if err := p.put("k", "a value to be found"); err != nil || !p.holds("a value to be found") {
					t.Errorf("%v: %v", addr, err)
				}
				p.close()
			}
			if err := srv.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if left.slabs.Load() != 0 || left.open.Load() != 0 {
				t.Errorf("%d regions, %d devices are left", left.slabs.Load(), left.open.Load())
			}
			if !strings.Contains(log.String(), "left out") || !strings.Contains(log.String(), memlock.Error()) {
				t.Errorf("the log does not say so: %s", log.String())
			}
		})
	}
}
