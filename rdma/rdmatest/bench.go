package rdmatest

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// Bench measures a fabric: one READ at a time beside a TCP ping-pong of the
// same sizes, then many goroutines that share one CQ.
func Bench(b *testing.B, cfg Config) {
	cfg.defaults()
	for _, size := range []int{64, 1024, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("read and tcp/%d", size), func(b *testing.B) { benchRatio(b, &cfg, size) })
	}
	for _, goroutines := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("read/64/goroutines=%d", goroutines), func(b *testing.B) { benchShared(b, &cfg, 64, goroutines) })
	}
}

// pingPong is the yardstick: a plain Go TCP connection whose other end answers
// 32 bytes, about a READ request, with size bytes.
type pingPong struct {
	conn            net.Conn
	request, answer []byte
}

func newPingPong(b *testing.B, size int) *pingPong {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		request, answer := make([]byte, 32), make([]byte, size)
		for {
			if _, err := io.ReadFull(conn, request); err != nil {
				return
			}
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return &pingPong{conn: conn, request: make([]byte, 32), answer: make([]byte, size)}
}

func (p *pingPong) turn(b *testing.B) {
	if _, err := p.conn.Write(p.request); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(p.conn, p.answer); err != nil {
		b.Fatal(err)
	}
}

// A reader does one READ after another, as a client's get does: post, wait.
type reader struct {
	p    *pair
	d    *wait.Dispatcher
	src  *region
	sink *region
	size int
}

func newReader(b *testing.B, cfg *Config, size, goroutines int) *reader {
	b.Helper()
	p := newPair(b, cfg, pairOptions{a: rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: 2 * goroutines}}})
	r := &reader{p: p, size: size, d: wait.NewDispatcher(p.a.cq, wait.Options{})}
	r.d.Start()
	r.src, r.sink = p.b.region(size, rdma.AccessRemoteRead), p.a.region(size*goroutines, rw(p.a))
	b.Cleanup(func() {
		p.a.check("QP.Close", p.qa.Close())
		p.a.check("Dispatcher.Close", r.d.Close())
	})
	return r
}

// wrs is what goroutine g posts again and again.
func (r *reader) wrs(g int) []rdma.SendWR {
	return []rdma.SendWR{read(r.sink, g*r.size, r.src.remote(0), r.size)}
}

func (r *reader) turn(b *testing.B, wrs []rdma.SendWR) {
	op := r.d.NewOp()
	wrs[0].ID = op.ID()
	if n, err := r.p.qa.PostSend(wrs); n != 1 {
		b.Error(err)
		r.d.Release(op)
		return
	}
	if wc, err := r.d.Wait(context.Background(), op); err != nil || wc.Status != rdma.StatusSuccess {
		b.Error(wc.Status, err)
	}
}

// benchRatio takes turns, a few dozen of each, so that other load on the
// machine meets both; the ratio of the medians is the figure.
func benchRatio(b *testing.B, cfg *Config, size int) {
	const batch = 32
	tcp, r := newPingPong(b, size), newReader(b, cfg, size, 1)
	wrs := r.wrs(0)
	var reads, pings []time.Duration
	b.ResetTimer()
	for i := range b.N {
		start := time.Now()
		if i/batch%2 == 0 {
			r.turn(b, wrs)
			reads = append(reads, time.Since(start))
		} else {
			tcp.turn(b)
			pings = append(pings, time.Since(start))
		}
	}
	b.StopTimer()
	if len(reads) < batch || len(pings) < batch {
		return
	}
	slices.Sort(reads)
	slices.Sort(pings)
	read, ping := reads[len(reads)/2], pings[len(pings)/2]
	b.ReportMetric(float64(read.Nanoseconds()), "read-p50-ns")
	b.ReportMetric(float64(ping.Nanoseconds()), "tcp-p50-ns")
	b.ReportMetric(float64(read)/float64(ping), "read/tcp")
}

func benchShared(b *testing.B, cfg *Config, size, goroutines int) {
	r := newReader(b, cfg, size, goroutines)
	b.ReportAllocs()
	if goroutines == 1 {
		wrs := r.wrs(0)
		for b.Loop() {
			r.turn(b, wrs)
		}
		return
	}
	slots := make(chan int, goroutines)
	for g := range goroutines {
		slots <- g
	}
	b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		var wrs []rdma.SendWR
		select {
		case g := <-slots:
			wrs = r.wrs(g)
		default: // more goroutines than asked for: GOMAXPROCS does not divide
			return
		}
		for pb.Next() {
			r.turn(b, wrs)
		}
	})
}
