package membership

import (
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"
)

// dialFlood opens a stream as an attacker would that knows the name of the cluster,
// which every refusal tells, and no key. It ends with the test.
func dialFlood(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// flood announces a sealed message of 20 MiB, the most that memberlist takes, and
// sends n bytes of it.
func flood(conn net.Conn, n int) {
	const sealed = 10 // memberlist's encryptMsg
	head := append([]byte{hasLabel, 4}, "demo"...)
	head = binary.BigEndian.AppendUint32(append(head, sealed), 20<<20)
	_, _ = conn.Write(append(head, make([]byte, n)...)) // may be cut off: that is the point
}

// floods has twelve streams from one host that together are above its limit, and none of them by itself, and
// returns when all is sent or cut off.
func floods(t *testing.T, addr string) {
	t.Helper()
	var wg sync.WaitGroup
	for range 12 {
		conn := dialFlood(t, addr)
		wg.Go(func() { flood(conn, maxStreamBytes-(1<<20)) })
	}
	wg.Wait()
}

// A host without a key cannot make us keep more than a few bytes: neither by one
// large message, nor by many that are large together and never end. Members are
// heard all the while.
func TestUnprovenBytesAreBounded(t *testing.T) {
	t.Parallel()
	a := onLoopback(t, "a", func(c *Config) { c.Profile = WAN }) // memberlist ends a stream after 15 s
	flood(dialFlood(t, a.addr()), 20<<20-1)
	eventually(t, a.Members, "a message that is too large is cut off", func() bool { return a.Stats().Busy > 0 })
	givenBack := func() bool {
		a.door.mu.Lock()
		defer a.door.mu.Unlock()
		return a.door.all == 0 && len(a.door.taken) == 0
	}
	eventually(t, a.Members, "what was counted of it is given back", givenBack)
	before := a.Stats().Busy
	// A machine may be so slow that the first streams are over before the last have begun. Then they come again.
	for try := 1; a.Stats().Busy == before; try++ {
		if try > 4 {
			t.Fatal("many are not cut off together")
		}
		floods(t, a.addr())
		if a.Stats().Busy == before {
			eventually(t, a.Members, "what was counted is given back", givenBack)
		}
	}
	b := onLoopback(t, "b", func(c *Config) { c.Join = []string{a.addr()} })
	seesAll(t, a, b)
	eventually(t, a.Members, "what was counted is given back", givenBack)
}
