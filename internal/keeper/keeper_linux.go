package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// firstHello is how long a keeper waits for its first node.
	firstHello = 30 * time.Second

	// patience is how long either end waits for the other one in the middle of an exchange.
	patience = 2 * time.Second

	// maxConnections bounds those that a keeper has at a time. One of them has the memory.
	maxConnections = 16
)

// A holder is what a keeper has.
type holder struct {
	uid  int // of nodes
	stop context.CancelFunc
	idle *time.Timer // ends the keeper; it runs while no node is there

	mu    sync.Mutex
	owner int // the process that has the connection; 0: none
	keep  time.Duration

	// The goroutine that serves the owner has these.
	kept  map[string]int // descriptors by name
	names []string       // in the order in which they came
}

// Run is the whole life of a keeper: it listens on a socket that its node has made, and returns when no node has come for as long as the last
// one wanted, when a node has left nothing, or when ctx ends. What it keeps is let go of then.
func Run(ctx context.Context, ln *net.UnixListener) error { return run(ctx, ln, os.Geteuid()) }

func run(ctx context.Context, ln *net.UnixListener, uid int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, func() { _ = ln.Close() })
	h := &holder{uid: uid, stop: stop, idle: time.AfterFunc(firstHello, stop), keep: firstHello, kept: make(map[string]int)}
	defer h.letGo()
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, maxConnections)
	for {
		c, err := ln.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("keeper: accept: %w", err)
		}
		select {
		case places <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-places }()
			ended := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer ended()
			defer c.Close()
			h.serve(c)
		})
	}
}

// serve serves a node for as long as its connection lasts.
func (h *holder) serve(c *net.UnixConn) {
	node, err := peerOf(c)
	if err != nil || node.trusted(h.uid) != nil {
		return
	}
	first, fd, err := receive(c, time.Now().Add(patience))
	closeFD(fd)
	if err != nil || first.kind != msgHello {
		return
	}
	if owner := h.enter(node.pid, first.keep); owner != 0 {
		_ = send(c, message{kind: msgBusy, pid: owner}, -1, time.Now().Add(patience))
		return
	}
	err = h.handOver(c)
	for err == nil {
		var m message
		if m, fd, err = receive(c, time.Time{}); err == nil {
			err = h.handle(c, m, fd)
		}
	}
	h.leave()
}

// enter gives the memory to a node. It returns the process that has it already, or 0.
func (h *holder) enter(pid int, keep time.Duration) (owner int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owner != 0 {
		return h.owner
	}
	h.owner, h.keep = max(pid, 1), keep // a node in another namespace of processes has no number here
	h.idle.Stop()
	return 0
}

// leave has the next node be waited for, if there is anything to wait with.
func (h *holder) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owner = 0
	if len(h.kept) == 0 || h.keep == 0 {
		h.stop()
		return
	}
	h.idle.Reset(h.keep)
}

// handOver sends all that is kept.
func (h *holder) handOver(c *net.UnixConn) error {
	deadline := time.Now().Add(patience)
	for _, name := range h.names {
		if err := send(c, message{kind: msgRegion, name: name}, h.kept[name], deadline); err != nil {
			return err
		}
	}
	return send(c, message{kind: msgDone}, -1, deadline)
}

// handle does what a node asks for.
func (h *holder) handle(c *net.UnixConn, m message, fd int) error {
	old, there := h.kept[m.name]
	switch {
	case m.kind == msgPut && (there || len(h.kept) < maxKept):
		h.kept[m.name] = fd
		if there {
			closeFD(old)
		} else {
			h.names = append(h.names, m.name)
		}
	case m.kind == msgDrop:
		if there {
			closeFD(old)
			delete(h.kept, m.name)
			for i, n := range h.names {
				if n == m.name {
					h.names = append(h.names[:i], h.names[i+1:]...)
					break
				}
			}
		}
	default:
		closeFD(fd)
		return ErrProtocol
	}
	return send(c, message{kind: msgDone}, -1, time.Now().Add(patience))
}

// letGo closes everything.
func (h *holder) letGo() {
	h.idle.Stop()
	for _, fd := range h.kept {
		closeFD(fd)
	}
	clear(h.kept)
}

// Serve is Run with the socket that Start has passed on.
func Serve(ctx context.Context) error {
	const passed = 3 // the first behind standard error
	f := os.NewFile(passed, "keeper socket")
	ln, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("keeper: descriptor %d is no socket: this command is for kvserver to run, by itself: %w", passed, err)
	}
	// It listens anew, so that the kernel names this process to those that connect, and not the node that made the socket.
	err = errors.Join(unix.Listen(passed, maxConnections), f.Close())
	u, ok := ln.(*net.UnixListener)
	if !ok || err != nil {
		return fmt.Errorf("keeper: descriptor %d is no UNIX socket that listens: this command is for kvserver to run, by itself (%w)", passed, errors.Join(err, ln.Close()))
	}
	u.SetUnlinkOnClose(false)
	return Run(ctx, u)
}
