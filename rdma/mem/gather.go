package mem

import "sync/atomic"

// Transparent huge pages for memory whose pages came one by one, as they were written to.
//
// Pages of a memfd do not become huge by themselves unless the machine is set so. Whoever reads much memory at random
// pays for it: each read of a page that was not read lately walks the page tables, which are 512 times as large
// then. So such memory is gathered afterwards, by MADV_COLLAPSE, which copies 2 MiB into a huge page and puts it in
// the place of the small ones, in this process and in all that have mapped it.

// Gather puts the pages of a block that was to have transparent huge pages into
// such, and takes those that are missing; it is for memory that has been filled, and
// whose pages came one by one. Others may read and write meanwhile; each step of
// some megabytes holds them up for less than a millisecond. Pages for which no huge
// page is available, on a busy or an older machine, stay as they are; so do pages that
// a device has pinned. Gather calls ok, which must not be nil, before each step, and
// returns early when ok says false, or when the block is freed.
func (b *Block) Gather(ok func() bool) {
	if !b.transparent {
		return
	}
	for off := 0; ok() && b.gatherAt(off); off += gatherStep {
	}
}

// Collapse puts memory that is in use into transparent huge pages, as far as b has room for whole ones: memory
// of Go's heap, for instance, that is read at random. It is best effort, as Gather is. Where nothing has been written
// to the place of a huge page yet, there is none. It takes about 0.1 ms for each.
func Collapse(b []byte) {
	if len(b) < hugeStep {
		return
	}
	skip := int(-addrOf(b) & (hugeStep - 1))
	for ; len(b)-skip >= hugeStep; skip += hugeStep {
		_ = collapse(b[skip : skip+hugeStep])
	}
}

// gathered is what GatherFilled has done.
type gathered struct {
	taken int64   // bytes that had pages when it went through last
	tries []uint8 // of each huge page: how often it was tried, or gatherOver
	bytes atomic.Int64
}

const (
	// gatherTries is how often the kernel is asked for one huge page. Where memory is in pieces it searches long
	// before it says no; and a peer that keeps pages pinned could have it search for good.
	gatherTries = 3
	gatherOver  = 0xff // it is huge
)

// GatherFilled is Gather for those huge pages of a shared block all of whose small pages are there, whatever
// was asked of Alloc: it takes no page that the block has not taken, and so can be called again and again while
// the block fills. Where no page has come since the last call it costs one system call. A huge page that the kernel does not
// have is asked for three times in all. Only one goroutine may call it.
func (b *Block) GatherFilled(ok func() bool) {
	if !b.shared || b.kind != Mmap {
		return
	}
	for from := int64(0); ok(); {
		next, more := b.gatherFilledFrom(from)
		if !more {
			return
		}
		from = next
	}
}

// Gathered is how many bytes GatherFilled has put into huge pages.
func (b *Block) Gathered() int64 { return b.done.bytes.Load() }

// gatherFilledFrom gathers the next huge page at or behind from, and says where to go on.
func (b *Block) gatherFilledFrom(from int64) (next int64, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes == nil {
		return 0, false // freed
	}
	d := &b.done
	if d.tries == nil {
		d.tries = make([]uint8, len(b.raw)/hugeStep)
	}
	if from == 0 {
		taken, ok := takenOf(b.raw)
		if !ok || taken == d.taken {
			return 0, false
		}
		d.taken = taken
	}
	for {
		start, end, ok := filledFrom(b.raw, from)
		if !ok {
			return 0, false
		}
		for at := (start + hugeStep - 1) &^ (hugeStep - 1); at+hugeStep <= end; at += hugeStep {
			n := &d.tries[at/hugeStep]
			if *n >= gatherTries {
				continue
			}
			*n++
			if collapse(b.raw[at : at+hugeStep]) {
				*n = gatherOver
				d.bytes.Add(hugeStep)
			}
			return at + hugeStep, true
		}
		from = end
	}
}

// hugeStep is the usual size of a huge page.
const hugeStep = 2 << 20

// gatherStep is the part of a block that Gather does under its lock.
const gatherStep = 4 << 20

// gatherAt gathers one step. It returns false if there is none.
func (b *Block) gatherAt(off int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if off >= len(b.raw) {
		return false
	}
	_ = collapse(b.raw[off:min(off+gatherStep, len(b.raw))])
	return true
}
