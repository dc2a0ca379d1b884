package membership

import (
	"encoding/binary"
	"net"
	"testing"
	"time"
)

// flood opens a stream as an attacker would that knows the name of the cluster,
// which every refusal tells, and no key: it announces a sealed message of 20 MiB,
// the most that memberlist takes, and sends n bytes of it.
func flood(t *testing.T, addr string, n int) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	const sealed = 10 // memberlist's encryptMsg
	head := append([]byte{hasLabel, 4}, "demo"...)
	head = binary.BigEndian.AppendUint32(append(head, sealed), 20<<20)
	_, _ = conn.Write(append(head, make([]byte, n)...)) // may be cut off: that is the point
	return conn
}

// A host without a key cannot make us keep more than a few bytes: neither by one
// large message, nor by many that are large together and never end. Members are
// heard all the while.
func TestUnprovenBytesAreBounded(t *testing.T) {
	t.Parallel()
	a := onLoopback(t, "a", func(c *Config) { c.Profile = LAN })
	flood(t, a.addr(), 20<<20-1)
	eventually(t, a.Members, "a message that is too large is cut off", func() bool { return a.Stats().Busy > 0 })
	before := a.Stats().Busy
	for range 12 {
		flood(t, a.addr(), maxStreamBytes-(1<<20))
	}
	eventually(t, a.Members, "many are cut off together", func() bool { return a.Stats().Busy > before })
	b := onLoopback(t, "b", func(c *Config) { c.Join = []string{a.addr()} })
	seesAll(t, a, b)
	eventually(t, a.Members, "what was counted is given back", func() bool {
		a.door.mu.Lock()
		defer a.door.mu.Unlock()
		return a.door.all == 0 && len(a.door.taken) == 0
	})
}
