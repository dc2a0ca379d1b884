package mem_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// Memory is allocated, registered, used, deregistered and freed, in this order. The
// ledger says where it went.
func Example() {
	ledger := mem.NewLedger(1 << 20) // this part of the program may have 1 MiB
	block, err := mem.Alloc(64<<10, mem.Options{Tag: "slab", Ledger: ledger})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(block.Bytes()), "bytes of", block.Kind(), "in", ledger.Of("slab").Blocks, "block")

	_, err = mem.Alloc(1<<20, mem.Options{Tag: "index", Ledger: ledger})
	fmt.Println("another MiB:", errors.Is(err, mem.ErrLimit))

	dev, err := iwarp.New(iwarp.Options{}).Open(context.Background(), "")
	if err != nil {
		log.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	mr, err := pd.RegMR(block.Bytes(), rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("registered:", mr.Len())

	// Close waits for accesses that are under way; after it the pages are not read any
	// more.
	if err := errors.Join(mr.Close(), pd.Close(), dev.Close(), block.Free()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(ledger.Total(), "bytes left")
	// Output:
	// 65536 bytes of mmap in 1 block
	// another MiB: true
	// registered: 65536
	// 0 bytes left
}

// Shared memory can be mapped by other processes of this host, read-only: fabric shm
// lets its clients do so. Where the system has no such memory, a program does without.
func ExampleAlloc_shared() {
	block, err := mem.Alloc(1<<20, mem.Options{Tag: "slab", Shared: true})
	if errors.Is(err, mem.ErrNotSupported) {
		block, err = mem.Alloc(1<<20, mem.Options{Tag: "slab"})
	}
	if err != nil {
		log.Fatal(err)
	}
	copy(block.Bytes(), "seen by everybody who maps it")
	if err := block.Free(); err != nil {
		log.Fatal(err)
	}
}

// A page table of huge pages is 512 times smaller, for the processor as for the NIC.
// Reserved ones may be missing; then transparent ones are the next best.
func ExampleAlloc_huge() {
	block, err := mem.Alloc(4<<20, mem.Options{Kind: mem.Huge, Tag: "slab"})
	if errors.Is(err, mem.ErrNoHugePages) || errors.Is(err, mem.ErrNotSupported) {
		block, err = mem.Alloc(4<<20, mem.Options{Transparent: true, Prefault: true, Tag: "slab"})
	}
	if err != nil {
		log.Fatal(err)
	}
	if err := block.Free(); err != nil {
		log.Fatal(err)
	}
}
