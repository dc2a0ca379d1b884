package device

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
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

func testPool(pd rdma.PD, limit int64) *Pool {
	return newPool(pd, rdma.AccessLocalWrite, mem.Heap, "test", 512, 1<<20, limit)
}

func TestBufferClasses(t *testing.T) {
	p := testPool(testPD(t), 16<<20)
	for _, tc := range []struct{ n, size int }{
		{0, 512}, {1, 512}, {512, 512}, {513, 1024}, {4096, 4096}, {70_000, 128 << 10}, {1 << 20, 1 << 20},
	} {
		b, err := p.get(t.Context(), tc.n)
		if err != nil || len(b.Mem) != tc.size || cap(b.Mem) != tc.size {
			t.Fatalf("%d bytes: %v %v", tc.n, b, err)
		}
		b.Mem[0], b.Mem[tc.size-1] = 1, 2
		if mr := b.block.mr.Bytes(); &mr[b.off] != &b.Mem[0] {
			t.Errorf("%d bytes: memory and registration are not at the same place", tc.n)
		}
		p.Put(b)
	}
	if _, err := p.get(t.Context(), 1<<20+1); !errors.Is(err, ErrNoMemory) {
		t.Errorf("too large: %v", err)
	}
	if err := p.close(base.ErrClosed); err != nil {
		t.Fatal(err)
	}
	if _, err := p.get(t.Context(), 1); !errors.Is(err, base.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// At the limit, idle blocks of other sizes make room; then callers wait, and
// are served when something comes back.
func TestBufferLimit(t *testing.T) {
	p := testPool(testPD(t), 2<<20)
	small, _ := p.get(t.Context(), 512)
	p.Put(small) // an idle block of small buffers
	one, err := p.get(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	two, err := p.get(t.Context(), 1<<20) // needs the room of the small ones
	if err != nil {
		t.Fatal(err)
	}
	if u := p.Usage(); u.Bytes > 2<<20 {
		t.Errorf("%d bytes registered", u.Bytes)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := p.get(ctx, 100); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNoMemory) {
		t.Errorf("beyond the limit: %v", err)
	}
	got := make(chan *Buffer)
	go func() {
		b, err := p.get(context.Background(), 100)
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	p.Put(two)
	p.Put(<-got)
	p.Put(one)
	if err := p.close(base.ErrClosed); err != nil {
		t.Fatal(err)
	}
}

// Close waits for calls that still hold a buffer: no memory vanishes that is in use.
func TestBufferCloseWaits(t *testing.T) {
	p := testPool(testPD(t), 2<<20)
	a, _ := p.get(t.Context(), 512)
	b, _ := p.get(t.Context(), 512)
	if q := p.Quarantine(b); q != 512 {
		t.Errorf("%d bytes in quarantine", q)
	}
	closed := make(chan error)
	go func() { closed <- p.close(base.ErrClosed) }()
	p.Put(a)
	select {
	case <-closed:
		t.Fatal("closed with a buffer in quarantine")
	case <-time.After(5 * time.Millisecond):
	}
	p.Release(b)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if u := p.Usage(); u.Bytes != 0 || u.Quarantined != 0 {
		t.Errorf("%d bytes registered, %d in quarantine", u.Bytes, u.Quarantined)
	}
}

// No two owners ever share a byte, and the limit holds, over any sequence.
func TestBufferModel(t *testing.T) {
	pd := testPD(t)
	rapid.Check(t, func(t *rapid.T) {
		const limit = 3 << 20
		p := testPool(pd, limit)
		held := map[*Buffer]byte{}
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
					for i := range b.Mem {
						b.Mem[i] = tag
					}
					held[b] = tag
				}
			} else {
				for b, tag := range held {
					for _, c := range b.Mem {
						if c != tag {
							t.Fatal("another goroutine wrote into it")
						}
					}
					p.Put(b)
					delete(held, b)
					break
				}
			}
			if u := p.Usage(); u.Bytes > limit {
				t.Fatalf("%d bytes registered", u.Bytes)
			}
		}
		for b := range held {
			p.Put(b)
		}
		if err := p.close(base.ErrClosed); err != nil {
			t.Fatal(err)
		}
	})
}
