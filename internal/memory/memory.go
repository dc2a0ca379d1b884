// Package memory hands out memory that may be registered with a NIC.
//
// A NIC reads registered memory at any time and without asking the Go
// runtime, so such memory must neither move, nor be collected, nor change
// owner while a registration lives. The Go heap promises none of that to a
// device. This package therefore maps memory of its own, page-aligned, and
// tells the kernel two things about it:
//
//   - MADV_DONTFORK: a child process does not inherit the pages. Without it
//     fork marks them copy-on-write, and the next store by the parent lands in
//     a fresh page that the NIC does not know.
//   - MADV_DONTDUMP: core dumps leave it out; slabs are large and hold users'
//     data.
//
// Kind Heap takes the bytes from the Go heap all the same. It is there for
// tests: the race detector watches Go memory only, so every fabric is tested
// with Heap (races are seen) and with Mmap (the real thing).
//
// Every block carries a tag that says what it is for, and a Ledger counts
// bytes and blocks by tag, so that "where did the memory go" has an answer.
//
// LoadWords is the one copy that a software responder may use on memory that
// others are writing: whole aligned 8-byte words, each loaded once, atomically.
package memory

import (
	"errors"
	"fmt"
	"sync"
)

// Errors that Alloc wraps; the text around them has the numbers.
var (
	// ErrSize: the size is not positive or beyond what can be mapped.
	ErrSize = errors.New("memory: bad size")
	// ErrLimit: the ledger's limit would be passed.
	ErrLimit = errors.New("memory: limit reached")
	// ErrNoMemory: the kernel refused the mapping.
	ErrNoMemory = errors.New("memory: the kernel gave none")
	// ErrNoHugePages: too few huge pages are reserved; the text says which
	// sysctl raises them.
	ErrNoHugePages = errors.New("memory: not enough huge pages")
	// ErrUnsealed: a descriptor that another process has passed could be cut off
	// under a reader, or is shorter than was said.
	ErrUnsealed = errors.New("memory: descriptor refused")
	// ErrNotSupported: this operating system cannot do it.
	ErrNotSupported = errors.New("memory: not supported here")
)

// Kind says where the bytes of a block come from.
type Kind uint8

const (
	// Mmap: anonymous pages of the normal size, page-aligned. The default.
	Mmap Kind = iota
	// Huge: reserved huge pages (vm.nr_hugepages), aligned to their size.
	Huge
	// Heap: the Go heap, aligned to 8 bytes. For tests under the race detector.
	Heap
)

func (k Kind) String() string {
	switch k {
	case Mmap:
		return "mmap"
	case Huge:
		return "huge"
	case Heap:
		return "heap"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MaxSize bounds one block in bytes (1 TiB): a size beyond it is a mistake,
// not a wish.
const MaxSize = 1 << 40

// Options say how to allocate. The zero value is an untagged Mmap block on the
// process's ledger.
type Options struct {
	Kind Kind
	// Shared puts Mmap and Huge pages into a sealed memfd, so that other
	// processes can be let read them (BackingOf). Heap ignores it.
	Shared bool
	// Tag names the purpose in the ledger: "slab", "index", "recv", …
	Tag string
	// Node is the NUMA node that the pages are to come from as long as it has
	// some; nil: any. Not for Heap.
	Node *int
	// Transparent asks for transparent huge pages; where there are none, the
	// pages are of the normal size. Mmap only.
	Transparent bool
	// Prefault takes the pages from the machine before Alloc returns, on several
	// threads; else each is taken when it is first written to. Not for Heap.
	Prefault bool
	// OnPrefault, if not nil, is told now and then how many bytes have been
	// taken, by one thread at a time. It must not block.
	OnPrefault func(bytes int)
	// Ledger counts the block and may refuse it; nil means Process().
	Ledger *Ledger
}

// A Block is one piece of zeroed memory. Its methods are safe for concurrent
// use; the bytes are the caller's to guard.
//
// A block is never freed behind the program's back: a slice of its bytes does
// not keep the Block alive for the garbage collector, so a finalizer could pull
// pages from under a NIC. Whoever allocates, frees.
type Block struct {
	kind   Kind
	tag    string
	ledger *Ledger
	shared bool
	size   int   // as asked, bytes
	footed int64 // bytes counted in the ledger: size rounded up to pages

	transparent bool // as asked

	mu    sync.Mutex
	bytes []byte // what Bytes returns; nil once freed
	raw   []byte // the whole mapping, as munmap wants it; nil for Heap
}

// Alloc returns size bytes of zeroed memory: page-aligned for Mmap and Huge,
// 8-byte aligned for Heap. Errors wrap ErrSize, ErrLimit, ErrNoMemory,
// ErrNoHugePages or ErrNotSupported.
func Alloc(size int, opt Options) (*Block, error) {
	if size <= 0 || size > MaxSize {
		return nil, fmt.Errorf("%w: %d bytes for %q, allowed are 1 to %d", ErrSize, size, opt.Tag, MaxSize)
	}
	unit, err := unitOf(opt.Kind)
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes for %q: %w", size, opt.Tag, err)
	}
	ledger := opt.Ledger
	if ledger == nil {
		ledger = Process()
	}
	b := &Block{kind: opt.Kind, tag: opt.Tag, ledger: ledger, size: size, transparent: opt.Transparent && opt.Kind == Mmap}
	rounded := (size + unit - 1) / unit * unit
	b.footed = int64(rounded)
	// Counted before it is mapped, so that two callers cannot pass the limit
	// together.
	if err := ledger.take(opt.Tag, b.footed); err != nil {
		return nil, err
	}
	if opt.Kind == Heap {
		b.bytes = heapBytes(rounded)[:size:size]
		return b, nil
	}
	pages := mapPages
	if b.shared = opt.Shared; b.shared {
		pages = mapShared
	}
	raw, err := pages(rounded, opt)
	if err != nil {
		ledger.give(opt.Tag, b.footed)
		return nil, fmt.Errorf("allocating %d bytes for %q: %w", rounded, opt.Tag, err)
	}
	b.raw, b.bytes = raw, raw[:size:size]
	return b, nil
}

// unitOf is the granule in bytes by which blocks of a kind grow.
func unitOf(k Kind) (int, error) {
	switch k {
	case Heap:
		return 8, nil
	case Mmap:
		return pageSize(), nil
	case Huge:
		return hugePageSize()
	}
	return 0, fmt.Errorf("%w: kind %v", ErrNotSupported, k)
}

// Bytes is the memory; the slice has no spare capacity. It panics after Free:
// the pages may belong to somebody else by then. Slices taken earlier must not
// be used after Free either; with Mmap and Huge such a use faults.
func (b *Block) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes == nil {
		panic(fmt.Sprintf("memory: Bytes of a freed block (%d bytes, kind %v, tag %q)", b.size, b.kind, b.tag))
	}
	return b.bytes
}

// Gather puts the pages of a block that was to have transparent huge pages into
// such, and takes those that are missing; for memory that has been filled, and
// whose pages came one by one. Others may read and write meanwhile; each step of
// some megabytes holds them up for less than a millisecond. What cannot be had, on
// a busy or an older machine, stays as it is; so do pages that a device has
// pinned. It returns early when ok says false, or when the block is freed.
func (b *Block) Gather(ok func() bool) {
	if !b.transparent {
		return
	}
	for off := 0; ok() && b.gatherAt(off); off += gatherStep {
	}
}

// gatherStep is the part of a block that Gather does under its lock.
const gatherStep = 4 << 20

// gatherAt gathers one step; false: there is none.
func (b *Block) gatherAt(off int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if off >= len(b.raw) {
		return false
	}
	collapse(b.raw[off:min(off+gatherStep, len(b.raw))])
	return true
}

// Size is the number of bytes asked for. It stays valid after Free.
func (b *Block) Size() int { return b.size }

// Kind is where the bytes came from.
func (b *Block) Kind() Kind { return b.kind }

// Tag is the purpose given to Alloc.
func (b *Block) Tag() string { return b.tag }

// Free returns the memory. Every registration of it must be closed before.
// Freeing twice is harmless. An error means that the kernel refused the unmap,
// which points to a broken block; the memory then stays counted.
func (b *Block) Free() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes == nil {
		return nil
	}
	if b.raw != nil {
		unmap := unmapPages
		if b.shared {
			unmap = unmapShared
		}
		if err := unmap(b.raw); err != nil {
			return fmt.Errorf("memory: unmapping %d bytes of %q: %w", len(b.raw), b.tag, err)
		}
	}
	b.raw, b.bytes = nil, nil
	b.ledger.give(b.tag, b.footed)
	return nil
}
