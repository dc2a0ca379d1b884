package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// testPD is a protection domain without any connection.
func testPD(t testing.TB) rdma.PD {
	t.Helper()
	dev, err := iwarp.New(iwarp.Options{}).Open(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(pd.Close(), dev.Close()); err != nil {
			t.Error(err) // something is still registered
		}
	})
	return pd
}

func testPool(pd rdma.PD, limit int64) *bufferPool {
	return newBufferPool(pd, rdma.AccessLocalWrite, memory.Heap, "test", 512, 1<<20, limit)
}

func TestBufferClasses(t *testing.T) {
	p := testPool(testPD(t), 16<<20)
	for _, tc := range []struct{ n, size int }{
		{0, 512}, {1, 512}, {512, 512}, {513, 1024}, {4096, 4096}, {70_000, 128 << 10}, {1 << 20, 1 << 20},
	} {
		b, err := p.get(t.Context(), tc.n)
		if err != nil || len(b.mem) != tc.size || cap(b.mem) != tc.size {
			t.Fatalf("%d bytes: %v %v", tc.n, b, err)
		}
		b.mem[0], b.mem[tc.size-1] = 1, 2
		if mr := b.block.mr.Bytes(); &mr[b.off] != &b.mem[0] {
			t.Errorf("%d bytes: memory and registration are not at the same place", tc.n)
		}
		p.put(b)
	}
	if _, err := p.get(t.Context(), 1<<20+1); !errors.Is(err, errNoBuffer) {
		t.Errorf("too large: %v", err)
	}
	if err := p.close(ErrClosed); err != nil {
		t.Fatal(err)
	}
	if _, err := p.get(t.Context(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// At the limit, idle blocks of other sizes make room; then callers wait, and
// are served when something comes back.
func TestBufferLimit(t *testing.T) {
	p := testPool(testPD(t), 2<<20)
	small, _ := p.get(t.Context(), 512)
	p.put(small) // an idle block of small buffers
	one, err := p.get(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	two, err := p.get(t.Context(), 1<<20) // needs the room of the small ones
	if err != nil {
		t.Fatal(err)
	}
	if total, _ := p.usage(); total > 2<<20 {
		t.Errorf("%d bytes registered", total)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := p.get(ctx, 100); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errNoBuffer) {
		t.Errorf("beyond the limit: %v", err)
	}
	got := make(chan *buffer)
	go func() {
		b, err := p.get(context.Background(), 100)
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	p.put(two)
	p.put(<-got)
	p.put(one)
	if err := p.close(ErrClosed); err != nil {
		t.Fatal(err)
	}
}

// Close waits for those who still hold a buffer: nobody's memory vanishes.
func TestBufferCloseWaits(t *testing.T) {
	p := testPool(testPD(t), 2<<20)
	a, _ := p.get(t.Context(), 512)
	b, _ := p.get(t.Context(), 512)
	if q := p.quarantine(b); q != 512 {
		t.Errorf("%d bytes in quarantine", q)
	}
	closed := make(chan error)
	go func() { closed <- p.close(ErrClosed) }()
	p.put(a)
	select {
	case <-closed:
		t.Fatal("closed with a buffer in quarantine")
	case <-time.After(5 * time.Millisecond):
	}
	p.release(b)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if total, q := p.usage(); total != 0 || q != 0 {
		t.Errorf("%d bytes registered, %d in quarantine", total, q)
	}
}

// No two owners ever share a byte, and the limit holds, over any sequence.
func TestBufferModel(t *testing.T) {
	pd := testPD(t)
	rapid.Check(t, func(t *rapid.T) {
		const limit = 3 << 20
		p := testPool(pd, limit)
		held := map[*buffer]byte{}
		tag := byte(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "get") {
				b, _, err := p.try(1 << rapid.IntRange(0, 20).Draw(t, "size"))
				if err != nil {
					t.Fatal(err)
				}
				if b != nil {
					if _, twice := held[b]; twice {
						t.Fatal("handed out twice")
					}
					tag++
					for i := range b.mem {
						b.mem[i] = tag
					}
					held[b] = tag
				}
			} else {
				for b, tag := range held {
					for _, c := range b.mem {
						if c != tag {
							t.Fatal("somebody else wrote into it")
						}
					}
					p.put(b)
					delete(held, b)
					break
				}
			}
			if total, _ := p.usage(); total > limit {
				t.Fatalf("%d bytes registered", total)
			}
		}
		for b := range held {
			p.put(b)
		}
		if err := p.close(ErrClosed); err != nil {
			t.Fatal(err)
		}
	})
}
