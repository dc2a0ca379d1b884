package rdmatest

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// Bench measures a fabric: one READ at a time beside a TCP ping-pong of the
// same sizes in the same run, then many goroutines that share one CQ.
func Bench(b *testing.B, cfg Config) {
	cfg.defaults()
	for _, size := range []int{64, 1024, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("tcp ping-pong/%d", size), func(b *testing.B) { benchPingPong(b, size) })
		b.Run(fmt.Sprintf("read/%d", size), func(b *testing.B) { benchRead(b, &cfg, size, 1) })
	}
	for _, goroutines := range []int{8, 64} {
		b.Run(fmt.Sprintf("read/64/goroutines=%d", goroutines), func(b *testing.B) { benchRead(b, &cfg, 64, goroutines) })
	}
}

// benchPingPong: 32 bytes of request, as a READ request is about that long,
// and size bytes of answer, by the plainest Go.
func benchPingPong(b *testing.B, size int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
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
	defer conn.Close()
	request, answer := make([]byte, 32), make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			b.Fatal(err)
		}
	}
}

func benchRead(b *testing.B, cfg *Config, size, goroutines int) {
	p := newPair(b, cfg, pairOptions{a: rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: 2 * goroutines}}})
	d := rdma.NewDispatcher(p.a.cq, rdma.DispatcherOptions{})
	d.Start()
	src, sink := p.b.region(size, rdma.AccessRemoteRead), p.a.region(size*goroutines, rw(p.a))
	ctx := context.Background()
	one := func(wrs []rdma.SendWR) {
		op := d.NewOp()
		wrs[0].ID = op.ID()
		if n, err := p.qa.PostSend(wrs); n != 1 {
			b.Error(err)
			d.Release(op)
			return
		}
		if wc, err := d.Wait(ctx, op); err != nil || wc.Status != rdma.StatusSuccess {
			b.Error(wc.Status, err)
		}
	}
	slots := make(chan int, goroutines)
	for g := range goroutines {
		slots <- g
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	if goroutines == 1 {
		wrs := []rdma.SendWR{read(sink, 0, src.remote(0), size)}
		for b.Loop() {
			one(wrs)
		}
	} else {
		b.SetParallelism(goroutines / runtime.GOMAXPROCS(0))
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			g := <-slots
			wrs := []rdma.SendWR{read(sink, g*size, src.remote(0), size)}
			for pb.Next() {
				one(wrs)
			}
			slots <- g
		})
	}
	b.StopTimer()
	p.a.check("QP.Close", p.qa.Close())
	p.a.check("Dispatcher.Close", d.Close())
}
