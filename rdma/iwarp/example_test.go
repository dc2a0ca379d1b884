package iwarp_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// Two ends of one connection in a process that has no RDMA device: one sends a
// message, the other has a buffer ready for it. To READ: see package rdma.
func Example() {
	ctx := context.Background()
	fabric := iwarp.New(iwarp.Options{})
	dev := must(fabric.Open(ctx, ""))
	pd, cq := must(dev.AllocPD()), must(dev.CreateCQ(16))
	block := must(mem.Alloc(64, mem.Options{}))
	mr := must(pd.RegMR(block.Bytes(), rdma.AccessLocalWrite))

	config := rdma.QPConfig{SendCQ: cq, RecvCQ: cq}
	a, b := must(pd.CreateQP(config)), must(pd.CreateQP(config))

	// iWARP does not wait for a receive: it must be posted before the peer sends.
	must(b.PostRecv([]rdma.RecvWR{{ID: 2, SGL: []rdma.SGE{{MR: mr, Len: 32}}}}))

	listener := must(dev.Listen(ctx, "127.0.0.1:0"))
	var accepting sync.WaitGroup
	accepting.Go(func() {
		request := must(listener.Accept(ctx))
		must(request.Accept(ctx, b, rdma.ConnParams{}))
	})
	must(a.Connect(ctx, listener.Addr().String(), rdma.ConnParams{}))
	accepting.Wait()
	fmt.Println(a.State(), b.State())

	n := copy(block.Bytes()[32:], "hello")
	must(a.PostSend([]rdma.SendWR{{ID: 1, Op: rdma.OpSend, SGL: []rdma.SGE{{MR: mr, Off: 32, Len: uint32(n)}}}}))

	// The SEND is not signaled: its success has no completion. The receive has one.
	var wcs [4]rdma.WC
	must(rdma.Await(ctx, cq, wcs[:]))
	fmt.Printf("request %d: %v, %v, %s\n", wcs[0].ID, wcs[0].Op, wcs[0].Status, block.Bytes()[:wcs[0].ByteLen])

	for _, f := range []func() error{a.Close, b.Close, listener.Close, mr.Close, block.Free, cq.Close, pd.Close, dev.Close} {
		if err := f(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// RTS RTS
	// request 2: RECV, SUCCESS, hello
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
