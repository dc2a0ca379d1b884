package security

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// attacker is where the connections of an attack come from: another address than
// the honest clients', as another machine has. Linux answers for all of 127/8.
const attacker = "127.0.0.2"

// mpaRequest is the first frame of a connection on iwarp, which promises length
// bytes of private data and carries private.
func mpaRequest(length int, private []byte) []byte {
	b := append([]byte("MPA ID Req Frame"), 0x40, 1)
	return append(binary.BigEndian.AppendUint16(b, uint16(length)), private...)
}

// TestHalfOpen: ten thousand connections that never get to Hello, kept open as
// long as the node lets them, while honest clients work and new ones come in. What
// the node spends on them is bounded.
func TestHalfOpen(t *testing.T) {
	onlyIWARP(t)
	r := startRig(t, func(c *server.Config) { c.Tenants[1].MaxSessions = 256 })
	stop := r.honest("alice", aliceWord)
	connect := wire.AppendConnect(nil, []byte(bobWord), wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Tenant: wire.TenantOf("bob")})
	forged := wire.AppendConnect(nil, []byte("a guess"), wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Tenant: wire.TenantOf("bob")})
	says := [][]byte{
		nil,                     // nothing
		{'M'},                   // a byte
		mpaRequest(0, nil)[:11], // half a frame
		mpaRequest(wire.ConnectSize, connect[:20]), // half of the private data
		mpaRequest(wire.ConnectSize, forged),       // all of it, with a wrong MAC
		mpaRequest(wire.ConnectSize, connect),      // a proper request, and no Hello: the same again and again
		nil,                                        // a proper request of its own, and no Hello
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// Both ends are of this process, and the node keeps what it may.
	many := min(*openFlag, int(limit.Cur)-4000)
	if many < *openFlag {
		t.Logf("%d connections: this process may have %d descriptors", many, limit.Cur)
	}
	before, memory := runtime.NumGoroutine(), heap()
	conns := make([]net.Conn, 0, many)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	newcomers, worst := 0, time.Duration(0)
	most := 0
	for i := range many {
		// From four addresses: the bound of a single one does not help.
		ip := net.ParseIP(attacker).To4()
		ip[3] += byte(i / len(says) % 4)
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}, Timeout: 10 * time.Second}
		conn, err := dialer.Dial("tcp", r.addr())
		if err != nil {
			continue // the node does not accept it: as good
		}
		conns = append(conns, conn)
		what := says[i%len(says)]
		if i%len(says) == len(says)-1 {
			own := wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Tenant: wire.TenantOf("bob")}
			rand.Read(own.Nonce[:])
			what = mpaRequest(wire.ConnectSize, wire.AppendConnect(nil, []byte(bobWord), own))
		}
		if what != nil {
			conn.Write(what) // the node may have hung up
		}
		most = max(most, runtime.NumGoroutine())
		if i%(many/8) == many/16 { // a new honest client, in the middle of it
			begun := time.Now()
			c, err := client.Dial(t.Context(), r.config("alice", aliceWord))
			if err != nil {
				t.Fatalf("a new client after %d: %v", i, err)
			}
			if err := c.Put(t.Context(), fmt.Appendf(nil, "new %d", i), []byte("v")); err != nil {
				t.Errorf("its put: %v", err)
			}
			c.Close()
			newcomers++
			worst = max(worst, time.Since(begun))
		}
	}
	// The goroutines of clients come on top; a thousand of the listener's and some
	// for each connection that is being set up are the bound.
	if most-before > 2500 {
		t.Errorf("%d goroutines for %d connections", most-before, many)
	}
	if grown := heap() - memory; grown > 256<<20 {
		t.Errorf("%d bytes for %d connections", grown, many)
	}
	t.Logf("%d half-open connections, %d of %d new clients served meanwhile, the slowest in %v; %d goroutines more at most",
		len(conns), newcomers, 8, worst, most-before)
	eventually(t, "nobody is being set up any more", func() bool { return r.limit("setups").Used == 0 })
	stop()
	if r.limit("setups").Hits == 0 {
		t.Error("the bound on set-ups was not met")
	}
}

// heap is the memory in use of the process.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestHalfOpenFabric is the same over any fabric, with fewer: connections that
// are accepted and never say Hello.
func TestHalfOpenFabric(t *testing.T) {
	r := startRig(t, func(c *server.Config) {
		c.MaxUnauthenticated, c.MaxSetupsPerHost = 24, 16
		c.SetupTimeout = 15 * time.Second // longer than it takes to knock forty times
	})
	stop := r.honest("alice", aliceWord)
	refused := 0
	var peers []*peer
	for range 40 {
		p := newPeer(t)
		p.tenant, p.word = "bob", bobWord
		err := p.reach(r.addr(), nil)
		switch {
		case err == nil:
			peers = append(peers, p)
		case errors.Is(err, wire.StatusBusy.Err()) || errors.Is(err, rdma.ErrRejected):
			refused++
			p.close()
		default:
			t.Fatal(err)
		}
		if used := r.limit("setups").Used; used > 16 {
			t.Errorf("%d of one host are being set up", used)
		}
	}
	// Each of the others was refused, or took the place of an older one.
	if hits := r.limit("host_setups").Hits; hits < 24 || len(peers)+refused != 40 {
		t.Errorf("%d were let in, %d refused; the bound was met %d times", len(peers), refused, hits)
	}
	for _, p := range peers[:min(2, len(peers))] {
		p.gone() // when their time is over
	}
	eventually(t, "their places are free", func() bool { return r.limit("setups").Used == 0 })
	r.dial("bob", bobWord)
	stop()
}

// TestReplayFlood: four addresses send 128 connection requests a second that honest
// clients have made (seen on the way, each sent twice) and send nothing more. Every
// other client is let in at once, without a second attempt; and so is one at the
// address of an attacker, with a few attempts.
func TestReplayFlood(t *testing.T) {
	onlyIWARP(t)
	r := startRig(t, func(c *server.Config) { c.Tenants[1].MaxSessions = 256 })
	dial := func(name string, change func(*client.Config)) time.Duration {
		t.Helper()
		cfg := r.config("alice", aliceWord)
		if change != nil {
			change(&cfg)
		}
		begun := time.Now()
		c, err := client.Dial(t.Context(), cfg)
		took := time.Since(begun)
		if err != nil {
			t.Fatalf("%s after %v: %v", name, took, err)
		}
		c.Close()
		return took
	}
	idle := time.Duration(0)
	for range 5 {
		idle = max(idle, dial("a client before the flood", nil))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	const perSecond = 128
	attackers := []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"}
	for _, host := range attackers {
		wg.Go(func() {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}, Timeout: 10 * time.Second}
			tick := time.NewTicker(time.Second * time.Duration(len(attackers)) / perSecond)
			defer tick.Stop()
			var conns []net.Conn
			defer func() {
				for _, c := range conns {
					c.Close()
				}
			}()
			var seen []byte
			for n := 0; ctx.Err() == nil; n++ {
				if n%2 == 0 {
					var nonce wire.Nonce
					rand.Read(nonce[:])
					seen = wire.AppendConnect(nil, []byte(bobWord), wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Tenant: wire.TenantOf("bob"), Nonce: nonce})
				}
				conn, err := dialer.DialContext(ctx, "tcp", r.addr())
				if err == nil {
					conn.Write(mpaRequest(wire.ConnectSize, seen))
					conns = append(conns, conn)
				}
				if len(conns) > 6*perSecond { // held for longer than the node waits for Hello
					conns[0].Close()
					conns = conns[1:]
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	eventually(t, "all places are taken", func() bool { return r.limit("setups").Hits > 0 })
	slowest := func() (worst time.Duration) {
		for i := range 50 {
			worst = max(worst, dial(fmt.Sprintf("honest client %d", i), func(c *client.Config) { c.DialOnce = true }))
		}
		t.Logf("50 of 50 clients came in, the slowest after %v (before the flood %v)", worst, idle)
		return worst
	}
	lots, enough := times{slowest()}, max(time.Second, 10*idle) // the machine may have other things to do
	for len(lots) < 3 && lots.at(0.5) > enough {
		lots = append(lots, slowest()) // one stall makes one of them slow; the flood would, in most lots
	}
	if worst := lots.at(0.5); worst > enough {
		t.Errorf("the slowest of 50 came in after %v; before the flood after %v", worst, idle)
	}
	// The tenant that was overheard comes in, too, as long as it has sessions left.
	dial("a client of bob's", func(c *client.Config) { c.Tenant, c.Secret = "bob", []byte(bobWord) })
	if r.refusals("replay") == 0 && r.spaceRefusals("bob", "replay") == 0 {
		t.Error("no copy was refused")
	}
}

// TestReplayFloodOfOneTenant: requests of a tenant with few sessions, seen on the way
// and sent again, do not keep its own clients out.
func TestReplayFloodOfOneTenant(t *testing.T) {
	r := startRig(t, func(c *server.Config) {
		c.Tenants[1].MaxSessions = 8
		c.SetupTimeout = time.Hour // a connection that is dropped makes room for another
	})
	var peers []*peer
	for range 8 {
		p := newPeer(t)
		p.tenant, p.word = "bob", bobWord
		if err := p.reach(r.addr(), nil); err != nil {
			t.Fatal(err)
		}
		peers = append(peers, p)
	}
	c := r.dial("bob", bobWord)
	if err := c.Put(t.Context(), []byte("k"), nil); err != nil {
		t.Error(err)
	}
	peers[0].gone() // the oldest
}

// TestManyAtOnce: a storm of honest clients of one host, more than may be set up at
// a time: the library tries again, and all of them come in.
func TestManyAtOnce(t *testing.T) {
	r := startRig(t, func(c *server.Config) { c.MaxUnauthenticated = 8 })
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			c, err := client.Dial(ctx, r.config("alice", aliceWord))
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		})
	}
	wg.Wait()
}
