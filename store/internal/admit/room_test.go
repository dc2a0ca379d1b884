package admit

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/log"
)

// A pool is a room that a test fills and empties; deletes have kept bytes more than puts.
type pool struct {
	mu    sync.Mutex
	left  int64
	kept  int64
	err   error // what Reserve says
	more  chan struct{}
	asked int
}

func newPool(left int64) *pool { return &pool{left: left, kept: 100, more: make(chan struct{})} }

func (p *pool) Reserve(n int64, use log.Use) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	switch {
	case p.err != nil:
		return p.err
	case use == log.Puts && p.left < n || p.left+p.kept < n:
		return log.ErrFull
	}
	p.left -= n
	return nil
}

func (p *pool) Unreserve(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left += n
	close(p.more)
	p.more = make(chan struct{})
}

func (p *pool) Room(use log.Use) (int64, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left, p.more
}

// Cost leaves the head of a record out, so that the figures of a test are those that it says.
func (p *pool) Cost(body int) int64 { return int64(body) - recordHead - perPart }

func (p *pool) has() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

// a line of callers that wait, each on a goroutine of its own.
type callers struct {
	g    *Gate
	down chan struct{}
	in   chan int64 // what those have who are in
	out  chan error
}

func newCallers(g *Gate) *callers {
	return &callers{g: g, down: make(chan struct{}), in: make(chan int64, 100), out: make(chan error, 100)}
}

func (c *callers) enter(ctx context.Context, n int64, use log.Use) {
	go func() {
		room, err := c.g.Enter(ctx, c.down, n, 1, use)
		if err != nil {
			c.out <- err
			return
		}
		c.in <- room
	}()
	synctest.Wait()
}

// TestRoomInOrder: who waits for room gets it in the order of coming, among puts; deletes
// pass them; nobody who does not wait passes those who do.
func TestRoomInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(50)
		wants := 0
		g := NewGate(1<<20, 100)
		g.With(Log{Room: p, Want: func() { wants++ }})
		c := newCallers(g)
		c.enter(t.Context(), 200, log.Puts)
		if wants != 1 || len(c.in) != 0 {
			t.Fatalf("%d calls for a checkpoint", wants)
		}
		c.enter(t.Context(), 10, log.Puts)
		if _, err := g.TryEnter(10, 1, log.Puts); !errors.Is(err, base.ErrOverloaded) {
			t.Fatalf("a small put passes a large one that waits: %v", err)
		}
		var full *LogError
		if _, err := g.TryEnter(10, 1, log.Puts); !errors.As(err, &full) || !full.Full {
			t.Fatal(err)
		}
		if room, err := g.TryEnter(120, 1, log.Deletes); err != nil || room != 120 {
			t.Fatalf("a delete does not pass puts: %v", err)
		}
		g.Leave(120, 1)
		c.enter(t.Context(), 60, log.Deletes) // one that waits for room: 30 are left to deletes
		if len(c.in) != 0 {
			t.Fatal("there is no room")
		}
		p.Unreserve(30)
		synctest.Wait()
		if len(c.in) != 1 || <-c.in != 60 {
			t.Fatal("room for the delete, and it does not get it")
		}
		p.Unreserve(120 + 60 + 120)
		synctest.Wait()
		if n := len(c.in); n != 1 {
			t.Fatalf("%d puts are in, with room for the first alone (%d)", n, p.has())
		}
		p.Unreserve(<-c.in)
		synctest.Wait()
		if n := len(c.in); n != 1 || <-c.in != 10 {
			t.Fatalf("%d puts", n)
		}
	})
}

// TestRoomEnds: who waits for room hears of its context, of the fence, of the end of the log and
// of Close; and lets the next one through.
func TestRoomEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(p *pool, g *Gate, c *callers, cancel func())
		want error
		all  bool // the next one ends, too
	}{
		{"context", func(_ *pool, _ *Gate, _ *callers, cancel func()) { cancel() }, context.Canceled, false},
		{"fence", func(_ *pool, _ *Gate, c *callers, _ func()) { close(c.down) }, base.ErrClosed, true},
		{"gate closed", func(_ *pool, g *Gate, _ *callers, _ func()) { <-g.Close() }, base.ErrClosed, true},
		{"log closed", func(p *pool, _ *Gate, _ *callers, _ func()) { p.err = log.ErrClosed; p.Unreserve(0) }, base.ErrClosed, true},
		{"log failed", func(p *pool, _ *Gate, _ *callers, _ func()) { p.err = log.ErrFailed; p.Unreserve(0) }, base.ErrFatal, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(0)
				g := NewGate(1<<20, 100)
				g.With(Log{Room: p})
				c := newCallers(g)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c.enter(ctx, 50, log.Puts)
				c.enter(t.Context(), 10, log.Puts)
				tc.end(p, g, c, cancel)
				synctest.Wait()
				if tc.all {
					if err := <-c.out; !errors.Is(err, tc.want) {
						t.Error(err)
					}
				}
				if err := <-c.out; !errors.Is(err, tc.want) {
					t.Error(err)
				}
				if !tc.all {
					p.Unreserve(10)
					if n := <-c.in; n != 10 {
						t.Error(n)
					}
				}
				if n := g.room.lines[log.Puts].n.Load(); n != 0 || len(g.room.lines[log.Puts].waiting) != 0 {
					t.Errorf("%d still wait", n)
				}
			})
		})
	}
}

// TestRoomBeforeGate: what a write has of the log it gives back if the gate does not let it in.
func TestRoomBeforeGate(t *testing.T) {
	p := newPool(1000)
	g := NewGate(100, 1)
	g.With(Log{Room: p})
	room, err := g.TryEnter(90, 1, log.Puts)
	if err != nil || room != 90 || p.has() != 910 {
		t.Fatal(room, err)
	}
	if _, err := g.TryEnter(20, 1, log.Puts); err != base.ErrOverloaded || p.has() != 910 {
		t.Errorf("%v, %d left", err, p.has())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := g.Enter(ctx, nil, 20, 1, log.Puts); !errors.Is(err, context.DeadlineExceeded) || p.has() != 910 {
		t.Errorf("%v, %d left", err, p.has())
	}
	g.Leave(90, 1)
	g.Return(room)
	if p.has() != 1000 {
		t.Errorf("%d left", p.has())
	}
}

// TestLargeWrite: a write that needs more than the log ever has ready is content with less.
func TestLargeWrite(t *testing.T) {
	p := newPool(60)
	g := NewGate(1<<20, 10)
	g.With(Log{Room: p, Large: 50})
	if room, err := g.TryEnter(500, 1, log.Puts); err != nil || room != 50 {
		t.Error(room, err)
	}
	if _, err := g.TryEnter(500, 1, log.Puts); !errors.Is(err, base.ErrOverloaded) {
		t.Error(err)
	}
	if _, err := g.TryEnter(40, 1, log.Puts); !errors.Is(err, base.ErrOverloaded) {
		t.Error(err)
	}
}

// TestRoomOfALog: the same over a real log, which gets full and gets room back.
func TestRoomOfALog(t *testing.T) {
	l := newLog(t)
	g := NewGate(1<<30, 1<<20)
	g.With(Log{Room: l, Piece: 64 << 10, Large: 512 << 10})
	var rooms []int64
	for {
		room, err := g.TryEnter(10_000, 1, log.Puts)
		if errors.Is(err, base.ErrOverloaded) {
			break
		}
		if err != nil || len(rooms) > 10_000 {
			t.Fatal(err, len(rooms))
		}
		rooms = append(rooms, room)
	}
	if len(rooms) < 20 {
		t.Errorf("full with %d writes", len(rooms))
	}
	if _, err := g.TryEnter(100, 1, log.Deletes); err != nil {
		t.Error(err)
	}
	in := make(chan error)
	go func() {
		_, err := g.Enter(context.Background(), nil, 100_000, 1, log.Puts)
		in <- err
	}()
	for _, room := range rooms {
		g.Return(room)
	}
	if err := <-in; err != nil {
		t.Error(err)
	}
}
