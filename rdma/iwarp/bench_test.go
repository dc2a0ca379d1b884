package iwarp

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// The yardstick of every READ here is a plain Go TCP ping-pong that moves the
// same number of bytes each way, in the same run, interleaved in rounds: on a
// shared machine only ratios mean anything.

// readFrames is what a READ of n bytes puts on the wire: request and response.
func readFrames(n int) (request, response int) {
	request = proto.FPDULen(proto.UntaggedLen + proto.ReadRequestLen)
	for {
		k := min(n, loopbackPayload)
		response += proto.FPDULen(proto.TaggedLen + k)
		if n -= k; n == 0 {
			return request, response
		}
	}
}

// pingPong is a TCP connection to an echo goroutine with fixed sizes.
type pingPong struct {
	conn     net.Conn
	out, in  []byte
	peerDone chan struct{}
}

func newPingPong(t testing.TB, request, response int) *pingPong {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	p := &pingPong{out: make([]byte, request), in: make([]byte, response), peerDone: make(chan struct{})}
	accepted := make(chan struct{})
	go func() {
		defer close(p.peerDone)
		c, err := l.Accept()
		close(accepted)
		if err != nil {
			return
		}
		defer c.Close()
		in, out := make([]byte, request), make([]byte, response)
		for {
			if _, err := io.ReadFull(c, in); err != nil {
				return
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}()
	p.conn, err = net.Dial("tcp", l.Addr().String())
	check(t, err)
	<-accepted // closing the listener before would reset the connection
	check(t, l.Close())
	t.Cleanup(func() { p.conn.Close(); <-p.peerDone })
	return p
}

func (p *pingPong) round(t testing.TB) {
	if _, err := p.conn.Write(p.out); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p.conn, p.in); err != nil {
		t.Fatal(err)
	}
}

// A reader posts READs of one size and waits for each, as a program would:
// poll, arm, poll, wait.
type benchReader struct {
	e   *end
	wrs [1]rdma.SendWR
	sge [1]rdma.SGE
	wcs [16]rdma.WC
}

// The responder sleeps as the reader does: in one process a responder that spins
// only takes its processor.
func newBenchReader(t testing.TB, n int) *benchReader { return newReader(t, n, wait.Event) }

func newReader(t testing.TB, n int, responder wait.Mode) *benchReader {
	a, b := connected(t, pairConfig{b: Options{Wait: responder}, bcfg: rdma.QPConfig{Access: rdma.AccessRemoteRead}})
	src, dst := b.mr(max(n, 4096), rdma.AccessRemoteRead), a.mr(n, rdma.AccessLocalWrite)
	r := &benchReader{e: a}
	r.sge[0] = rdma.SGE{MR: dst, Len: uint32(n)}
	r.wrs[0] = rdma.SendWR{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: r.sge[:], Remote: rdma.RemoteAddr{RKey: src.RKey()}}
	return r
}

func (r *benchReader) round(t testing.TB) {
	if _, err := r.e.qp.PostSend(r.wrs[:]); err != nil {
		t.Fatal(err)
	}
	for {
		for range 2 {
			n, err := r.e.cq.Poll(r.wcs[:])
			if err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				if r.wcs[0].Status != rdma.StatusSuccess {
					t.Fatal(r.wcs[0].Status)
				}
				return
			}
			if err := r.e.cq.Arm(); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.e.cq.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// compare times each READ and each ping-pong, in turns, and reports the medians
// and their ratio: a mean would say what else the machine did.
func compare(b *testing.B, read, tcp func()) {
	const turn = 64
	timed := func(list []time.Duration, f func()) []time.Duration {
		for range turn {
			start := time.Now()
			f()
			list = append(list, time.Since(start))
		}
		return list
	}
	timed(nil, read)
	timed(nil, tcp)
	var reads, pings []time.Duration
	for b.Loop() {
		reads = timed(reads, read)
		pings = timed(pings, tcp)
	}
	slices.Sort(reads)
	slices.Sort(pings)
	r, p := reads[len(reads)/2], pings[len(pings)/2]
	b.ReportMetric(0, "ns/op") // an iteration is a turn of 64, which says nothing
	b.ReportMetric(float64(r.Nanoseconds()), "read-p50-ns")
	b.ReportMetric(float64(p.Nanoseconds()), "tcp-p50-ns")
	b.ReportMetric(float64(r)/float64(p), "read/tcp")
}

func BenchmarkRead(b *testing.B) {
	for _, n := range []int{64, 4096, 65536} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			r := newBenchReader(b, n)
			p := newPingPong(b, requestLen(n), responseLen(n))
			compare(b, func() { r.round(b) }, func() { p.round(b) })
		})
	}
}

func requestLen(n int) int  { r, _ := readFrames(n); return r }
func responseLen(n int) int { _, r := readFrames(n); return r }

// BenchmarkRead64 is 64 goroutines with a connection each, against as many
// ping-pongs.
func BenchmarkReadParallel(b *testing.B) {
	const workers = 64
	for _, n := range []int{64, 4096} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			var readers [workers]*benchReader
			var pings [workers]*pingPong
			for i := range workers {
				readers[i] = newBenchReader(b, n)
				pings[i] = newPingPong(b, requestLen(n), responseLen(n))
			}
			all := func(f func(i int)) func() {
				return func() {
					var wg sync.WaitGroup
					for i := range workers {
						wg.Go(func() { f(i) })
					}
					wg.Wait()
				}
			}
			compare(b, all(func(i int) { readers[i].round(b) }), all(func(i int) { pings[i].round(b) }))
		})
	}
}

// BenchmarkReadBatch posts 32 READs with one call and waits for all.
func BenchmarkReadBatch(b *testing.B) {
	const batch = 32
	for _, n := range []int{64, 4096} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			r := newBenchReader(b, n)
			wrs := make([]rdma.SendWR, batch)
			for i := range wrs {
				wrs[i] = r.wrs[0]
			}
			b.ReportAllocs()
			b.SetBytes(int64(n) * batch)
			for b.Loop() {
				if _, err := r.e.qp.PostSend(wrs); err != nil {
					b.Fatal(err)
				}
				for done := 0; done < batch; {
					k, err := r.e.cq.Poll(r.wcs[:])
					if err != nil {
						b.Fatal(err)
					}
					if done += k; k > 0 {
						continue
					}
					check(b, r.e.cq.Arm())
					if k, _ = r.e.cq.Poll(r.wcs[:]); k > 0 {
						done += k
						continue
					}
					check(b, r.e.cq.Wait(context.Background()))
				}
			}
			b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "reads/s")
		})
	}
}

// BenchmarkReadBulk moves 1 MiB with one READ, against TCP.
func BenchmarkReadBulk(b *testing.B) {
	const n = 1 << 20
	r := newBenchReader(b, n)
	p := newPingPong(b, requestLen(n), responseLen(n))
	b.SetBytes(n)
	compare(b, func() { r.round(b) }, func() { p.round(b) })
}
