package mem

import (
	"errors"
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
)

// Errors that Alloc wraps; the text around them has the numbers.
var (
	// ErrSize: the size is not positive, or beyond MaxSize.
	ErrSize = memfd.ErrSize
	// ErrLimit: the ledger's limit would be passed.
	ErrLimit = errors.New("memory: limit reached")
	// ErrNoMemory: the kernel refused the mapping.
	ErrNoMemory = memfd.ErrNoMemory
	// ErrNoHugePages: too few huge pages are reserved; the text says which
	// sysctl raises them.
	ErrNoHugePages = errors.New("memory: not enough huge pages")
	// ErrNotSupported: this operating system cannot do it.
	ErrNotSupported = memfd.ErrNotSupported
)

// Kind says where the bytes of a block come from.
type Kind uint8

const (
	// Mmap: anonymous pages of the normal size, page-aligned. The default.
	Mmap Kind = iota
	// Huge: reserved huge pages (vm.nr_hugepages), aligned to their size.
	Huge
	// Heap: the Go heap, aligned to 8 bytes. For tests under the race detector. If
	// the Go runtime gets no memory for it the process ends, as with make.
	Heap
)

// String is "mmap", "huge" or "heap".
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

// MaxSize bounds one block, bytes (1 TiB): a size beyond it is a mistake.
const MaxSize = 1 << 40

// Options say how to allocate. The zero value is an untagged Mmap block on the
// process's ledger.
type Options struct {
	Kind Kind
	// Shared puts Mmap and Huge pages into a sealed memfd, so that other
	// processes can be given them to read, and only to read: fabric shm does so with
	// the regions that peers may read. Linux only (ErrNotSupported); it takes a file
	// descriptor for as long as the block lives. Heap ignores it.
	Shared bool
	// Kept puts Mmap pages into a memfd that the next process of the program can map to write, if something holds its
	// descriptor (Descriptor) until then (Adopt). Not together with Shared, whose memory nobody maps to write a second time. Linux only.
	Kept bool
	// Tag names the purpose in the ledger: "slab", "index", "recv", …
	Tag string
	// Node is the NUMA node that the pages are to come from as long as it has
	// some; nil: any. Not for Heap.
	Node *int
	// Transparent asks for transparent huge pages; where there are none, the
	// pages are of the normal size. Mmap only.
	Transparent bool
	// Prefault takes the pages from the machine before Alloc returns, on several
	// threads. Without it each page is taken when it is first written to. Not for
	// Heap.
	Prefault bool
	// OnPrefault, if not nil, is told now and then how many bytes have been
	// taken, by one thread at a time. It must not block.
	OnPrefault func(bytes int)
	// Ledger counts the block and may refuse it; nil means Process().
	Ledger *Ledger
}

// A Block is one piece of zeroed memory. Its methods are safe for concurrent use;
// guarding the bytes is up to the caller.
//
// No finalizer frees a block: a slice of its bytes does not keep the Block alive for
// the garbage collector, so that a finalizer could pull pages from under a NIC. The
// code that allocates a block must free it.
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
	done  gathered
	raw   []byte // the whole mapping, as munmap needs it; nil for Heap
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
	if b.shared = opt.Shared || opt.Kept; b.shared {
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

// Adopt is a block of memory that another process has passed on, with the bytes that it has: of a block with Options.Kept, or, for reading alone, with
// Options.Shared. Its size is that of the descriptor, which is the block's from then on; after an error it stays the caller's. tag is Options.Tag.
func Adopt(fd int, tag string) (*Block, error) {
	raw, err := adoptShared(fd)
	if err != nil {
		return nil, fmt.Errorf("memory for %q of an earlier process: %w", tag, err)
	}
	b := &Block{kind: Mmap, tag: tag, ledger: Process(), size: len(raw), footed: int64(len(raw)), shared: true, raw: raw, bytes: raw[:len(raw):len(raw)]}
	if err := b.ledger.take(tag, b.footed); err != nil {
		return nil, errors.Join(err, leaveShared(raw))
	}
	return b, nil
}

// Descriptor is that of the memfd behind a block with Options.Shared or Kept, which stays the block's; -1 if there is none.
func (b *Block) Descriptor() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.shared || b.raw == nil {
		return -1
	}
	return descriptorOf(b.raw)
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

// Bytes is the memory; the slice has no spare capacity. It panics after Free,
// because the pages may belong to another owner by then. Slices taken earlier must
// not be used after Free either: on Linux such a use of Mmap and Huge memory ends the
// process with a fault, or meets what was mapped at that address since.
func (b *Block) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes == nil {
		panic(fmt.Sprintf("memory: Bytes of a freed block (%d bytes, kind %v, tag %q)", b.size, b.kind, b.tag))
	}
	return b.bytes
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
