package rdma_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// One end offers 16 bytes of its memory, the other end READs them. Both are in one
// process here, over the software RNIC; with verbs.New instead of iwarp.New, and
// an address of an RDMA device, the same program uses that device.
func Example() {
	ctx := context.Background()

	// The passive end listens, and lets the peer read its memory.
	there, at := must2(rdma.OpenAt(ctx, iwarp.New(iwarp.Options{}), "127.0.0.1:0"))
	defer there.Close()
	listener := must(there.Listen(ctx, at.Addr))
	defer listener.Close()
	offered := newEnd(there, rdma.AccessRemoteRead)
	defer offered.close()
	copy(offered.memory.Bytes(), "one-sided")
	var accepting sync.WaitGroup
	accepting.Go(func() {
		request := must(listener.Accept(ctx))
		must(request.Accept(ctx, offered.qp, rdma.ConnParams{}))
	})

	// The active end connects, and reads.
	addr := listener.Addr().String()
	here, to := must2(rdma.OpenFor(ctx, iwarp.New(iwarp.Options{}), addr))
	defer here.Close()
	reader := newEnd(here, rdma.AccessLocalWrite) // a READ writes into its sink
	defer reader.close()
	must(reader.qp.Connect(ctx, to.Addr, rdma.ConnParams{}))
	accepting.Wait()

	// Between processes, rkey and address come in a message, or as private data.
	must(reader.qp.PostSend([]rdma.SendWR{{
		ID:     1,
		Op:     rdma.OpRDMARead,
		Flags:  rdma.SendSignaled,
		SGL:    []rdma.SGE{{MR: reader.mr, Len: 16}},
		Remote: rdma.RemoteAddr{RKey: offered.mr.RKey(), Addr: offered.mr.Addr()},
	}}))
	var wcs [1]rdma.WC
	must(rdma.Await(ctx, reader.cq, wcs[:]))

	// Only now is the sink ours again.
	fmt.Printf("request %d: %v, %d bytes: %.9s\n", wcs[0].ID, wcs[0].Status, wcs[0].ByteLen, reader.memory.Bytes())
	// Output: request 1: SUCCESS, 16 bytes: one-sided
}

// An end is what one connection needs.
type end struct {
	pd     rdma.PD
	cq     rdma.CQ
	memory *mem.Block
	mr     rdma.MR
	qp     rdma.QP
}

func newEnd(dev rdma.Device, access rdma.Access) *end {
	e := &end{pd: must(dev.AllocPD()), cq: must(dev.CreateCQ(16)), memory: must(mem.Alloc(16, mem.Options{}))}
	e.mr = must(e.pd.RegMR(e.memory.Bytes(), access))
	// The right is needed twice: on the region, and on the queue pair of this peer.
	e.qp = must(e.pd.CreateQP(rdma.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, Access: access & rdma.AccessRemoteRead}))
	return e
}

// close lets go in the order in which nothing that is closed is still in use.
func (e *end) close() {
	for _, f := range []func() error{e.qp.Close, e.mr.Close, e.memory.Free, e.cq.Close, e.pd.Close} {
		if err := f(); err != nil {
			log.Fatal(err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func must2[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		log.Fatal(err)
	}
	return a, b
}
