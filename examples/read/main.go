// Read reads the memory of another process: "read serve HOST:PORT" there, "read HOST:PORT" here.
package main

import (
	"context"
	"encoding/binary"
	"log"
	"os"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func main() {
	ctx := context.Background()
	dev, at, err := rdma.OpenFor(ctx, iwarp.New(iwarp.Options{}), os.Args[len(os.Args)-1])
	pd, cq := must(must(dev, err).AllocPD()), must(dev.CreateCQ(16))
	block := must(mem.Alloc(24, mem.Options{}))
	mr := must(pd.RegMR(block.Bytes(), rdma.AccessLocalWrite|rdma.AccessRemoteRead))
	qp := must(pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq, Access: rdma.AccessRemoteRead}))
	if len(os.Args) == 3 { // serve
		copy(block.Bytes(), "hello, one-sided world!\n")
		where := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, mr.RKey()), mr.Addr())
		req := must(must(dev.Listen(ctx, at.Addr)).Accept(ctx))
		must(req.Accept(ctx, qp, rdma.ConnParams{PrivateData: where}))
		<-qp.Done() // the reader has gone; no completion ever told us that it has read
		return
	}
	where := must(qp.Connect(ctx, at.Addr, rdma.ConnParams{})).PrivateData // 12 bytes, of a peer that we trust
	from := rdma.RemoteAddr{RKey: binary.BigEndian.Uint32(where), Addr: binary.BigEndian.Uint64(where[4:])}
	must(qp.PostSend([]rdma.SendWR{{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: mr, Len: 24}}, Remote: from}}))
	var wcs [1]rdma.WC
	must(rdma.Await(ctx, cq, wcs[:]))
	log.Printf("%v: %s", wcs[0].Status, block.Bytes())
	must(0, qp.Close())
}
