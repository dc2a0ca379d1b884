package server

import (
	"fmt"
	"net"
	"testing"

	"github.com/rdmakv/rdmakv/internal/perf"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store"
)

// The benchmarks measure the SEND path through fabric, session and store, with
// the store on a file system in memory: the disk is the store's to measure.
// BenchmarkTCP is the yardstick: a plain ping-pong of the same sizes.

func benchServer(b *testing.B) *Server {
	return startServer(b, func(c *Config) { c.MemoryKind = mem.Mmap; c.Sync = store.Off })
}

func BenchmarkTCP(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	p := perf.PingPong{Network: "tcp", Request: 64, Answer: 64}
	go func() { _ = p.Serve(ln) }()
	pinger, err := p.Dial(b.Context(), ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer pinger.Close()
	for b.Loop() {
		if err := pinger.Round(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPing(b *testing.B) {
	p := dial(b, benchServer(b), peerOptions{})
	for b.Loop() {
		if err := p.ping(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{100, 4096} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := dial(b, benchServer(b), peerOptions{})
			value := string(make([]byte, size))
			for i := 0; b.Loop(); i++ {
				if err := p.put(fmt.Sprintf("key%06d", i%10000), value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPutPipelined keeps as many puts under way as the session has
// credits; time is per put.
func BenchmarkPutPipelined(b *testing.B) {
	srv := benchServer(b)
	p := dial(b, srv, peerOptions{})
	value := make([]byte, 100)
	var flying []uint64
	for i := 0; b.Loop(); i++ {
		for p.credits == 0 {
			if h, _, err := p.await(flying[0]); err != nil || h.Status != wire.StatusOK {
				b.Fatal(h, err)
			}
			flying = flying[1:]
		}
		id := p.id()
		msg := wire.AppendPut(nil, id, wire.Put{Key: fmt.Appendf(nil, "key%06d", i%10000), Value: value})
		wire.SetFlags(msg, wire.FlagWantCredits)
		p.send(msg)
		p.credits--
		flying = append(flying, id)
	}
	for _, id := range flying {
		if h, _, err := p.await(id); err != nil || h.Status != wire.StatusOK {
			b.Fatal(h, err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	p := dial(b, benchServer(b), peerOptions{})
	if err := p.put("key", string(make([]byte, 100))); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := p.get("key", 1000); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLargePut is the rendezvous: 1 MiB READ from the client, checked and
// stored.
func BenchmarkLargePut(b *testing.B) {
	p := dial(b, benchServer(b), peerOptions{})
	const n = 1 << 20
	sum := checksum(p.sink()[:n])
	b.SetBytes(n)
	for b.Loop() {
		if err := p.putLarge([]byte("k"), n, sum); err != nil {
			b.Fatal(err)
		}
	}
}
