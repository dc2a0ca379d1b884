package verbs_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// Every request that was taken completes, also those that were posted while the
// QP was being closed: else its waiter would wait for ever.
func TestPostWhileClosing(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		r := newRig(t, opts)
		m := r.region(4096, mem.Mmap, rdma.AccessLocalWrite)
		addr := r.listen(func(req rdma.ConnRequest) {
			_, _ = req.Accept(context.Background(), r.qp(rdma.QPConfig{}), rdma.ConnParams{})
		})
		for round := range 10 {
			q := r.qp(rdma.QPConfig{})
			if _, err := q.Connect(t.Context(), addr, rdma.ConnParams{}); err != nil {
				t.Fatal(err)
			}
			var sends, recvs atomic.Int64
			const most = 300 // of each kind: together they fit the CQ
			posting := make(chan struct{}, 4)
			post := func(taken *atomic.Int64, one func() (int, error)) {
				for i := 0; taken.Load() < most; i++ {
					n, err := one()
					taken.Add(int64(n))
					if i == 20 {
						posting <- struct{}{}
					}
					if errors.Is(err, rdma.ErrNotConnected) {
						break
					}
				}
				posting <- struct{}{}
			}
			go post(&sends, func() (int, error) {
				return q.PostSend([]rdma.SendWR{{ID: 1, Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: m, Len: 8}}}})
			})
			go post(&recvs, func() (int, error) {
				return q.PostRecv([]rdma.RecvWR{{ID: 2, SGL: []rdma.SGE{{MR: m, Len: 8}}}})
			})
			<-posting
			<-posting
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			<-posting
			<-posting
			got := map[uint64]int64{}
			for {
				var wcs [64]rdma.WC
				n, err := r.cq.Poll(wcs[:])
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					break
				}
				for _, wc := range wcs[:n] {
					if wc.QPN == q.QPN() {
						got[wc.ID]++
					}
				}
			}
			if got[1] != sends.Load() || got[2] != recvs.Load() {
				t.Fatalf("round %d: %d of %d sends and %d of %d receives completed", round, got[1], sends.Load(), got[2], recvs.Load())
			}
		}
	})
}
