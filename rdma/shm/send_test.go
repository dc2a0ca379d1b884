//go:build linux

package shm

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// BenchmarkSendRoundTrip is a request and a reply of 64 bytes, both ends spinning
// in goroutines of one process: with two processors, what a round trip through the
// rings takes.
func BenchmarkSendRoundTrip(b *testing.B) {
	x, y := connected(b, Options{}, Options{})
	mx, my := x.mr(4096, rdma.AccessLocalWrite), y.mr(4096, rdma.AccessLocalWrite)
	post := func(e *end, m rdma.MR) {
		if _, err := e.qp.PostRecv([]rdma.RecvWR{{ID: 1, SGL: []rdma.SGE{{MR: m, Len: 64}}}}); err != nil {
			b.Error(err)
		}
	}
	send := func(e *end, m rdma.MR) {
		if _, err := e.qp.PostSend([]rdma.SendWR{{ID: 2, Op: rdma.OpSend, SGL: []rdma.SGE{{MR: m, Off: 64, Len: 64}}}}); err != nil {
			b.Error(err)
		}
	}
	hear := func(e *end) bool {
		var wcs [1]rdma.WC
		for {
			n, err := e.cq.(rdma.Spinner).Spin(wcs[:], 50*time.Microsecond)
			if err != nil || n == 1 {
				return err == nil && wcs[0].Status == rdma.StatusSuccess
			}
		}
	}
	post(y, my)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for hear(y) {
			post(y, my)
			send(y, my)
		}
	}()
	for b.Loop() {
		post(x, mx)
		send(x, mx)
		if !hear(x) {
			b.Fatal(x.qp.Err())
		}
	}
	b.StopTimer()
	check(b, x.qp.Disconnect())
	<-done
}
