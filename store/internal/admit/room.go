package admit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/log"
)

// A Room is the room of a log; *log.Log has it.
type Room interface {
	Reserve(n int64, use log.Use) error
	Unreserve(n int64)
	Room(use log.Use) (int64, <-chan struct{})
	Cost(body int) int64
}

// A Log is what a gate knows of the log that its writes go into.
type Log struct {
	Room Room
	// Piece is the largest body of a record; a larger one goes in pieces. 0: there is none.
	Piece int
	// Large is what a write is content with that needs more. Half a segment: that much there
	// is again and again, while what a value of 64 MiB takes may be more than the log has ready
	// files for, ever. The frames of such a write wait for files, and not for a checkpoint.
	Large int64
	Bytes int64 // the log's bound
	// Left is how much of the bound is left, and Rate how many bytes of the log checkpoints
	// take in a second. nil: puts are not slowed down.
	Left, Rate func() int64
	// Want is called when somebody finds no room: a checkpoint has to make some. It waits for
	// nothing. nil: nobody is told.
	Want func()
	// Trouble is why checkpoints fail, so that it can be told to those whom the log has no room
	// for. nil: nothing is known of it, or they do not fail.
	Trouble func() error

	// Now and Sleep are the clock of what slows puts down; nil: that of the machine. Sleep
	// ends early when done is closed, or ctx ends.
	Now   func() time.Time
	Sleep func(ctx context.Context, done <-chan struct{}, d time.Duration)
}

// A LogError says that a write was not admitted because of the log. It Is ErrOverloaded.
type LogError struct {
	Full bool // there is no room; else puts are slowed down, because there is little
	// Wait is how long it takes until a put is let in that is slowed down, if no other comes.
	Wait time.Duration
	// Trouble is why checkpoints fail; nil: they do not, and the log will have room again.
	Trouble error
}

// Error says what is the matter, and what to do. Of Trouble it says what the machine said, and
// not of which file: who puts need not know the server's directories.
func (e *LogError) Error() string {
	switch what := "fail"; {
	case e.Trouble != nil:
		if no, ok := errors.AsType[syscall.Errno](e.Trouble); ok {
			what = "fail (" + no.Error() + ")"
		}
		return "store: overloaded: checkpoints " + what + ", so the log has no room: look into the server's log, and try again when that is mended"
	case e.Full:
		return "store: overloaded: the log is full, and a checkpoint is under way: try again"
	}
	return "store: overloaded: the log fills faster than checkpoints empty it: try again"
}

// Is makes errors.Is(e, ErrOverloaded) hold.
func (e *LogError) Is(target error) bool { return target == base.ErrOverloaded }

// A room hands out the room of a log. Writers of one use get it in the order in which they
// came, so that a large put is not passed by small ones for ever; deletes pass puts, because
// they have room where puts have none.
type room struct {
	log    Log
	brake  brake
	closed chan struct{}
	over   sync.Once
	lines  [uses]line
}

// uses is how many uses there are that pass the gate: puts and deletes.
const uses = int(log.Deletes) + 1

// A line is those who wait for room of one use.
type line struct {
	n       atomic.Int32 // len(waiting), for those who only look
	mu      sync.Mutex
	waiting []chan struct{} // oldest first; closed when it is the first
}

func newRoom(l Log) *room {
	r := &room{log: l, closed: make(chan struct{})}
	if r.log.Now == nil {
		r.log.Now = time.Now
	}
	if r.log.Sleep == nil {
		r.log.Sleep = sleep
	}
	if r.log.Want == nil {
		r.log.Want = func() {}
	}
	if r.log.Trouble == nil {
		r.log.Trouble = func() error { return nil }
	}
	r.brake.log = &r.log
	return r
}

// close refuses those who wait.
func (r *room) close() { r.over.Do(func() { close(r.closed) }) }

// tryTake takes room for a write, or says that there is none. One that is counted already is not
// slowed down.
func (r *room) tryTake(n int64, parts int, use log.Use, counted bool) (int64, error) {
	body := bodyOf(n, parts)
	if use == log.Puts && !counted {
		if wait := r.brake.lets(body); wait > 0 {
			return 0, &LogError{Wait: wait, Trouble: r.log.Trouble()}
		}
	}
	if r.lines[use].n.Load() > 0 {
		return 0, &LogError{Full: true, Trouble: r.log.Trouble()}
	}
	got, err := r.reserve(r.log.need(body, parts), use)
	if errors.Is(err, log.ErrFull) {
		r.log.Want()
		return 0, &LogError{Full: true, Trouble: r.log.Trouble()}
	}
	return got, reasonOf(err)
}

// take takes room for a write, and waits until there is some.
func (r *room) take(ctx context.Context, down <-chan struct{}, n int64, parts int, use log.Use) (int64, error) {
	body := bodyOf(n, parts)
	if use == log.Puts {
		if d := r.brake.pause(body); d > 0 {
			r.log.Sleep(ctx, down, d)
		}
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	need, l := r.log.need(body, parts), &r.lines[use]
	if l.n.Load() == 0 {
		if got, err := r.reserve(need, use); !errors.Is(err, log.ErrFull) {
			return got, reasonOf(err)
		}
	}
	first := l.enter()
	defer l.leave(first)
	if err := r.wait(ctx, down, first); err != nil {
		return 0, err
	}
	for {
		// What says that there is more is taken before the look, so nothing is missed.
		_, more := r.log.Room.Room(use)
		got, err := r.reserve(need, use)
		if !errors.Is(err, log.ErrFull) {
			return got, reasonOf(err)
		}
		r.log.Want()
		if err := r.wait(ctx, down, more); err != nil {
			return 0, err
		}
	}
}

// wait waits for c.
func (r *room) wait(ctx context.Context, down, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-down:
		return base.ErrClosed
	case <-r.closed:
		return base.ErrClosed
	}
}

// reserve sets room aside, and returns how much.
func (r *room) reserve(need int64, use log.Use) (int64, error) {
	err := r.log.Room.Reserve(need, use)
	if errors.Is(err, log.ErrFull) && r.log.Large > 0 && need > r.log.Large {
		need = r.log.Large
		err = r.log.Room.Reserve(need, use)
	}
	if err != nil {
		return 0, err
	}
	return need, nil
}

// reasonOf is an error of the log, as the store says it.
func reasonOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, log.ErrClosed):
		return base.ErrClosed
	}
	return fmt.Errorf("%w: %w", base.ErrFatal, err)
}

// enter joins the line. What it returns is closed when the caller is the first.
func (l *line) enter() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan struct{})
	if l.waiting = append(l.waiting, c); len(l.waiting) == 1 {
		close(c)
	}
	l.n.Store(int32(len(l.waiting)))
	return c
}

// leave leaves the line, from any place in it.
func (l *line) leave(c chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, c)
	l.waiting = slices.Delete(l.waiting, i, i+1)
	if i == 0 && len(l.waiting) > 0 {
		close(l.waiting[0])
	}
	l.n.Store(int32(len(l.waiting)))
}

// sleep waits for a time, until ctx ends or done is closed.
func sleep(ctx context.Context, done <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-done:
	}
}

// What a write takes in the log is not known before it is judged, but bounded by what it was
// admitted with. Its record (package logged) has
//
//	+------+-----------+-----------------------+-----------------------------+-------+
//	| head | result of | for each part: a head | what it was admitted with:  | slot  |
//	|      | a request | of 4 words at most    | keys, values, forgotten ids |       |
//	+------+-----------+-----------------------+-----------------------------+-------+
//
// and an increment has a number for a value that nobody brought along. If a bound here were
// less than what the record comes to, writers would fill the room that is kept for deletes
// and facts, and a full log could not be emptied any more.
const (
	recordHead = 16 + resultLen + base.SlotKeyLen
	resultLen  = 64
	partHead   = 8 + 4*8
	numberLen  = 24
	perPart    = partHead + numberLen
)

// bodyOf bounds the bytes of the record of a write that was admitted with n bytes, in so
// many parts.
func bodyOf(n int64, parts int) int64 {
	return n + recordHead + int64(max(parts, 1))*perPart
}

// need bounds what a write takes of the log. If its record is larger than a piece, its values
// go in pieces, each in a frame of its own, which leaves the rest of a block; small values of
// a batch have a piece each. The record has the places of them.
func (l *Log) need(body int64, parts int) int64 {
	if l.Piece <= 0 || body <= int64(l.Piece) {
		return l.Room.Cost(int(body))
	}
	pieces := 2*body/int64(l.Piece) + int64(max(parts, 1))
	return body + (pieces+1)*2*l.Room.Cost(1)
}
