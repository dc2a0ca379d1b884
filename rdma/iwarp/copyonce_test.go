package iwarp

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
)

// F15: while a writer changes the words of a region without pause, READs of it
// go on and each word arrives whole. A responder that looked at a region twice
// would send what is not what it checksummed, and its connection would die of a
// bad CRC.
func TestCopyOnce(t *testing.T) {
	reads := 3000
	if teeth.Mutant != "" {
		reads = 100000
	}
	a, b := connected(t, pairConfig{bcfg: rdma.QPConfig{Access: rdma.AccessRemoteRead}})
	if err := readUnderWrites(t, a, b, reads); err != nil {
		t.Errorf("%v: %v", err, a.qp.Err())
	}
}

// readUnderWrites READs a region of n equal-halved words while a writer
// rewrites them, and returns the first bad completion or torn word.
func readUnderWrites(t *testing.T, a, b *end, reads int) error {
	const size = 4096
	src, dst := b.mr(size, rdma.AccessRemoteRead), a.mr(size, rdma.AccessLocalWrite)
	var stop atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	wg.Go(func() {
		for v := uint64(0); !stop.Load(); v++ {
			v &= 1<<32 - 1
			storeWords(src.Bytes(), v<<32|v)
		}
	})
	for range reads {
		a.send(rdma.SendWR{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: dst, Len: size}}, Remote: rdma.RemoteAddr{RKey: src.RKey()}})
		if wc := a.wait(1)[0]; wc.Status != rdma.StatusSuccess {
			return wc.Status.Err()
		}
		for i := 0; i < size; i += 8 {
			if w := binary.NativeEndian.Uint64(dst.Bytes()[i:]); w>>32 != w&(1<<32-1) {
				t.Fatalf("torn word %#x", w)
			}
		}
	}
	return nil
}
