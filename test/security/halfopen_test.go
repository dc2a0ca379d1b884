package security

import (
	"context"
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
	r := startRig(t, nil)
	stop := r.honest("alice", aliceWord)
	connect := wire.AppendConnect(nil, []byte(bobWord), wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Tenant: wire.TenantOf("bob")})
	forged := wire.AppendConnect(nil, []byte("a guess"), wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Tenant: wire.TenantOf("bob")})
	says := [][]byte{
		nil,                     // nothing
		{'M'},                   // a byte
		mpaRequest(0, nil)[:11], // half a frame
		mpaRequest(wire.ConnectSize, connect[:20]), // half of the private data
		mpaRequest(wire.ConnectSize, forged),       // all of it, with a wrong MAC
		mpaRequest(wire.ConnectSize, connect),      // a proper request, and no Hello
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
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(attacker)}, Timeout: 10 * time.Second}
	newcomers, worst := 0, time.Duration(0)
	most := 0
	for i := range many {
		conn, err := dialer.Dial("tcp", r.addr())
		if err != nil {
			continue // the node does not accept it: as good
		}
		conns = append(conns, conn)
		if what := says[i%len(says)]; what != nil {
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
	if r.limit("host_setups").Hits == 0 {
		t.Error("the bound on set-ups of one host was not met")
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
	}
	if len(peers) > 16 || refused < 24 {
		t.Errorf("%d are being set up, %d were refused", len(peers), refused)
	}
	for _, p := range peers[:min(2, len(peers))] {
		p.gone() // when their time is over
	}
	eventually(t, "their places are free", func() bool { return r.limit("setups").Used == 0 })
	r.dial("bob", bobWord)
	stop()
}

// TestManyAtOnce: a storm of honest clients, more than may be set up at a time:
// the library tries again, and all of them come in.
func TestManyAtOnce(t *testing.T) {
	r := startRig(t, func(c *server.Config) { c.MaxUnauthenticated = 8 })
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			for {
				c, err := client.Dial(ctx, r.config("alice", aliceWord))
				if err == nil {
					c.Close()
					return
				}
				if !errors.Is(err, client.ErrOverloaded) {
					t.Errorf("told %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}
