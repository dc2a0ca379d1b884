package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// TestLeaseOff: clients are told in so many words, the log warns, and the time
// that other things are counted in stays.
func TestLeaseOff(t *testing.T) {
	for _, off := range []bool{false, true} {
		var log bytes.Buffer
		cfg := testConfig()
		cfg.LeaseOff, cfg.Logger = off, slog.New(slog.NewTextHandler(&log, nil))
		srv, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := srv.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := dial(t, srv, peerOptions{})
		if got := p.wel.Flags&wire.WelcomeLeaseOff != 0; got != off || p.wel.Lease != 2*time.Second {
			t.Errorf("off %v: welcome %+v", off, p.wel)
		}
		if st, err := srv.Stats(); err != nil || st.LeaseOff != off {
			t.Errorf("off %v: stats say %v, %v", off, st.LeaseOff, err)
		}
		p.close()
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strings.Contains(log.String(), "level=WARN msg=\"the lease is OFF"); got != off {
			t.Errorf("off %v: the log is %s", off, log.String())
		}
	}
}

// TestHugePages: with them, the regions are in them; without them, "on" fails
// and says what to do, and "try" goes on and says so.
func TestHugePages(t *testing.T) {
	probe, err := mem.Alloc(2<<20, mem.Options{Kind: mem.Huge, Tag: "probe"})
	some := err == nil
	if some {
		probe.Free()
	}
	for _, huge := range []HugePages{HugeOff, HugeTry, HugeOn, HugeAuto} {
		t.Run(huge.String(), func(t *testing.T) {
			var log bytes.Buffer
			cfg := testConfig()
			cfg.RegionSize, cfg.IndexRegionSize = 2<<20, 2<<20
			cfg.HugePages, cfg.Logger = huge, slog.New(slog.NewTextHandler(&log, nil))
			srv, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = srv.Start(t.Context())
			if huge == HugeOn && err != nil {
				if some {
					t.Logf("one huge page is there, but not enough: %v", err)
				}
				if !strings.Contains(err.Error(), "nr_hugepages") && !strings.Contains(err.Error(), "this kernel has none") {
					t.Errorf("started: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			p := dial(t, srv, peerOptions{})
			if err := p.put("k", "a value to be found"); err != nil || !p.holds("a value to be found") {
				t.Error(err)
			}
			st, err := srv.Stats()
			if err != nil {
				t.Fatal(err)
			}
			p.close()
			if err := srv.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			switch {
			case st.HugePages != huge.String() || st.Registered < 4<<20:
				t.Errorf("stats: huge_pages %s, %d bytes registered", st.HugePages, st.Registered)
			case (huge == HugeOff || huge == HugeAuto) && st.Huge != 0, huge == HugeOn && st.Huge != st.Registered:
				t.Errorf("%d of %d bytes are in huge pages", st.Huge, st.Registered)
			case huge == HugeTry && st.Huge < st.Registered && !strings.Contains(log.String(), "normal pages instead of huge ones"):
				t.Errorf("%d of %d bytes are in huge pages, and the log does not say so: %s", st.Huge, st.Registered, log.String())
			}
		})
	}
}

// TestSharedReceivesComeBack: sessions that die with messages on their way take
// no receive of the shared queue with them.
func TestSharedReceivesComeBack(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.SharedReceives = session.SharedOn })
	for i := range 40 {
		p := dial(t, srv, peerOptions{})
		msg := wire.AppendPut(nil, p.id(), wire.Put{Key: []byte("k"), Value: bytes.Repeat([]byte{byte(i)}, 12<<10)})
		p.post(msg, min(4, p.credits))
		p.close() // most of them are cut off
	}
	eventually(t, "the sessions are gone", func() bool { return len(srv.main.Sessions.List()) == 0 })
	promised, existing, left := srv.main.Rails.All()[0].SharedReceives()
	if used := srv.main.Rails.All()[0].Buffers()[0].Used; promised != 0 || used != existing || left != 0 {
		t.Errorf("%d receives promised to nobody, %d are out of %d posted, %d sessions known", promised, used, existing, left)
	}
}
