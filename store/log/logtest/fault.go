package logtest

import (
	"errors"
	"fmt"
	"io"
)

// Op is what a call does.
type Op uint8

// The calls of a log.Dir and its files that can be held, failed and crashed. Those from
// OpCreate on change something.
const (
	OpList Op = iota
	OpOpen
	OpRead
	OpCreate
	OpRename
	OpRemove
	OpSyncDir
	OpWrite
	OpSync
	OpTruncate
	ops
)

// String names the call.
func (o Op) String() string {
	names := [ops]string{"list", "open", "read", "create", "rename", "remove", "sync of the directory", "write", "sync", "truncate"}
	if o < ops {
		return names[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// Changes reports whether the call changes something.
func (o Op) Changes() bool { return o >= OpCreate }

// A Call is one call of a log to its disk.
type Call struct {
	N      int // of all calls, from 1
	Change int // of those that change something, from 1; 0: it is none of them
	Op     Op
	Name   string // under which the file was opened, or which is renamed or removed
	To     string // of a rename
	Off    int64
	Len    int
	Direct bool
}

// String tells the call as a test prints it.
func (c Call) String() string {
	s := fmt.Sprintf("call %d: %v %s", c.N, c.Op, c.Name)
	if c.To != "" {
		s += " to " + c.To
	}
	if c.Op == OpWrite || c.Op == OpRead {
		s += fmt.Sprintf(" %d bytes at %d", c.Len, c.Off)
	}
	return s
}

// A Fault is what becomes of a call.
type Fault struct {
	Err error // it fails with this
	// Short: a write takes so many bytes and fails, with io.ErrShortWrite if Err is nil.
	Short int
	// Lost: a Sync that fails has put some sectors on the platter, and the others never
	// get there, though the cache has them and no later Sync fails.
	Lost  bool
	Crash bool // the power goes during the call
	// Hold: the call goes on when the channel is closed. A direct write is on its way
	// meanwhile.
	Hold <-chan struct{}
}

// faults is the part of a Disk that decides what becomes of calls.
type faults struct {
	hook    func(Call) Fault
	crashAt int // the change during which the power goes; 0: none
	calls   int
	changes int
	counts  [ops]int
	bytes   int64         // written, by calls that succeeded
	dead    bool          // the power is gone
	gone    chan struct{} // closed then
}

// OnCall makes hook decide what becomes of each call. It is called without locks, by the
// goroutine of the call; nil takes it away.
func (d *Disk) OnCall(hook func(Call) Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = hook
}

// CrashAt makes the power go during the n-th call that changes something, from now on
// counted from 1. 0 takes it away.
func (d *Disk) CrashAt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashAt = 0
	if n > 0 {
		d.crashAt = d.changes + n
	}
}

// FailAt makes the n-th call from now on, counted from 1, end as f says, and no other.
func (d *Disk) FailAt(n int, f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.calls + n
	d.hook = func(c Call) Fault {
		if c.N == at {
			return f
		}
		return Fault{}
	}
}

// PowerOff ends everything at once: calls on their way, and all later ones, fail.
func (d *Disk) PowerOff() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.die()
}

func (d *Disk) die() {
	if !d.dead {
		d.dead = true
		close(d.gone)
	}
}

// Dead reports whether the power is gone.
func (d *Disk) Dead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// begin counts a call, and returns when it may go on: what becomes of it, and the error
// with which it fails. Submit, if there is one, is called with d.mu held as soon as the
// disk has the call. If the power goes during the call, submit still runs, and the error is
// errCutShort or ErrCrashed.
func (d *Disk) begin(c Call, submit ...func(Fault)) (Fault, error) {
	d.mu.Lock()
	if d.dead {
		d.mu.Unlock()
		return Fault{}, ErrCrashed
	}
	d.calls++
	c.N = d.calls
	if c.Op.Changes() {
		d.changes++
		c.Change = d.changes
	}
	d.counts[c.Op]++
	hook := d.hook
	if c.Change != 0 && c.Change == d.crashAt {
		// At once: no call that begins now may end as if the power were still there.
		for _, s := range submit {
			s(Fault{})
		}
		d.die()
		d.mu.Unlock()
		return Fault{}, errCutShort
	}
	d.mu.Unlock()
	var f Fault
	if hook != nil {
		f = hook(c)
	}
	d.mu.Lock()
	if d.dead {
		d.mu.Unlock()
		return f, ErrCrashed
	}
	for _, s := range submit {
		s(f)
	}
	if f.Crash {
		d.die()
		d.mu.Unlock()
		return f, errCutShort
	}
	d.mu.Unlock()
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-d.gone:
			return f, ErrCrashed
		}
	}
	if f.Err != nil {
		return f, f.Err
	}
	if f.Short > 0 {
		return f, io.ErrShortWrite
	}
	return f, nil
}

// errCutShort is the ErrCrashed of the call during which the power went: its change is
// pending, so that it may be there afterwards.
var errCutShort = fmt.Errorf("%w, during this call", ErrCrashed)

// cutShort reports whether the power went during the call.
func (d *Disk) cutShort(err error) bool { return errors.Is(err, errCutShort) }

// Calls is how many calls there were, and how many of them changed something.
func (d *Disk) Calls() (all, changes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls, d.changes
}

// Count is how many calls of a kind there were.
func (d *Disk) Count(o Op) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[o]
}

// Bytes is how many bytes were written.
func (d *Disk) Bytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes
}

// Handles is how many files are open.
func (d *Disk) Handles() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handles
}
