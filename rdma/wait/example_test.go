package wait_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// Ten goroutines READ over one connection and share its completion queue. Each
// waits for its own READ; none of them is there to poll for the others.
func Example() {
	const readers, size = 10, 8
	ctx := context.Background()
	dev := must(iwarp.New(iwarp.Options{}).Open(ctx, ""))
	pd, cq := must(dev.AllocPD()), must(dev.CreateCQ(2*readers))
	block := must(mem.Alloc(2*readers*size, mem.Options{}))
	mr := must(pd.RegMR(block.Bytes(), rdma.AccessLocalWrite|rdma.AccessRemoteRead))
	qp, peer := connect(ctx, dev, pd, cq)
	for i := range readers {
		copy(block.Bytes()[i*size:], fmt.Sprintf("value %d", i))
	}

	d := wait.NewDispatcher(cq, wait.Options{})
	var found [readers]string
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			source, sink := uint64(i*size), uint64((readers+i)*size)
			op := d.NewOp()
			_, err := qp.PostSend([]rdma.SendWR{{
				ID:     op.ID(), // by it the dispatcher knows which op the completion belongs to
				Op:     rdma.OpRDMARead,
				Flags:  rdma.SendSignaled,
				SGL:    []rdma.SGE{{MR: mr, Off: sink, Len: size}},
				Remote: rdma.RemoteAddr{RKey: mr.RKey(), Addr: mr.Addr() + source},
			}})
			if err != nil {
				d.Release(op) // there will be no completion
				log.Fatal(err)
			}
			wc := must(d.Wait(ctx, op))
			if err := wc.Status.Err(); err != nil {
				log.Fatal(err)
			}
			found[i] = string(block.Bytes()[sink:][:7])
		})
	}
	wg.Wait()
	fmt.Println(found[0], found[1], "…", found[readers-1])

	// First the queue pairs, then the dispatcher, then the queue that it polls.
	for _, f := range []func() error{qp.Close, peer.Close, d.Close, cq.Close, mr.Close, block.Free, pd.Close, dev.Close} {
		if err := f(); err != nil {
			log.Fatal(err)
		}
	}
	// Output: value 0 value 1 … value 9
}

// connect makes both ends of a connection; the peer's CQ is the same.
func connect(ctx context.Context, dev rdma.Device, pd rdma.PD, cq rdma.CQ) (qp, peer rdma.QP) {
	qp = must(pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq}))
	peer = must(pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq, Access: rdma.AccessRemoteRead}))
	listener := must(dev.Listen(ctx, "127.0.0.1:0"))
	var accepting sync.WaitGroup
	accepting.Go(func() {
		request := must(listener.Accept(ctx))
		must(request.Accept(ctx, peer, rdma.ConnParams{}))
	})
	must(qp.Connect(ctx, listener.Addr().String(), rdma.ConnParams{}))
	accepting.Wait()
	if err := listener.Close(); err != nil {
		log.Fatal(err)
	}
	return qp, peer
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
