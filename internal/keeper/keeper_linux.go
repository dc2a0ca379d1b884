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

// firstHello is how long a keeper waits for its first node.
const firstHello = 30 * time.Second

// A holder is what a keeper has.
type holder struct {
	mu    sync.Mutex
	kept  map[string]int // descriptors by name
	names []string       // in the order in which they came
	owner int            // the process that has the connection; 0: none
	keep  time.Duration  // for which the next node is waited for
}

// Run is the whole life of a keeper: it listens on a socket that its node has made, and returns when no node has come for as long as the last
// one wanted, when a node has left nothing, or when ctx ends. What it keeps is let go of then.
func Run(ctx context.Context, ln *net.UnixListener) error {
	h := &holder{kept: make(map[string]int), keep: firstHello}
	defer h.letGo()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, func() { _ = ln.Close() })
	var wg sync.WaitGroup
	defer wg.Wait()
	idle := time.AfterFunc(firstHello, stop)
	for {
		c, err := ln.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("keeper: accept: %w", err)
		}
		context.AfterFunc(ctx, func() { _ = c.Close() })
		wg.Go(func() {
			defer c.Close()
			if sameUser(c) != nil {
				return
			}
			served := h.serve(c, idle)
			if !served {
				return
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.owner = 0
			if len(h.kept) == 0 || h.keep == 0 {
				stop()
				return
			}
			idle.Reset(h.keep)
		})
	}
}

// serve serves a node. It returns false if the connection never was the right to the memory.
func (h *holder) serve(c *net.UnixConn, idle *time.Timer) bool {
	kind, body, fd, err := receive(c, patience)
	closeFD(fd)
	if err != nil || kind != msgHello {
		return false
	}
	keep, err := parseHello(body)
	if err != nil {
		return false
	}
	h.mu.Lock()
	if h.owner != 0 {
		owner := h.owner
		h.mu.Unlock()
		_ = send(c, msgBusy, fmt.Append(nil, owner), -1)
		return false
	}
	h.owner, h.keep = pidOf(c), keep
	idle.Stop()
	err = h.handOver(c)
	h.mu.Unlock()
	for err == nil {
		kind, body, fd, err = receive(c, 0)
		if err == nil {
			err = h.handle(c, kind, body, fd)
		}
	}
	return true
}

// handOver sends all that is kept. The caller holds mu.
func (h *holder) handOver(c *net.UnixConn) error {
	for _, name := range h.names {
		if err := send(c, msgRegion, []byte(name), h.kept[name]); err != nil {
			return err
		}
	}
	return send(c, msgDone, nil, -1)
}

// handle does what a node asks for.
func (h *holder) handle(c *net.UnixConn, kind byte, body []byte, fd int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := string(body)
	old, there := h.kept[name]
	switch {
	case kind == msgPut && fd >= 0 && goodName(body) && (there || len(h.kept) < maxKept):
		h.kept[name] = fd
		if there {
			closeFD(old)
		} else {
			h.names = append(h.names, name)
		}
	case kind == msgDrop && fd < 0:
		if there {
			closeFD(old)
			delete(h.kept, name)
			for i, n := range h.names {
				if n == name {
					h.names = append(h.names[:i], h.names[i+1:]...)
					break
				}
			}
		}
	default:
		closeFD(fd)
		return ErrProtocol
	}
	return send(c, msgDone, nil, -1)
}

// letGo closes everything.
func (h *holder) letGo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fd := range h.kept {
		closeFD(fd)
	}
	clear(h.kept)
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// pidOf is the process at the other end, for people.
func pidOf(c *net.UnixConn) int {
	pid := 1
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && cred.Pid > 0 {
				pid = int(cred.Pid)
			}
		})
	}
	return pid
}

// ErrBusy: another process has the memory.
var ErrBusy = errors.New("keeper: the memory is in use by another process")

// A Client is a node's connection to its keeper. Safe for concurrent use.
type Client struct {
	mu   sync.Mutex
	conn *net.UnixConn
	err  error // the first one: the keeper is gone
}

// Connect connects to the keeper that listens at path, and returns what it keeps, by name; the descriptors are the caller's. It fails with ErrBusy while another
// process has the memory.
func Connect(path string, keep time.Duration) (*Client, map[string]int, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, nil, err
	}
	kept := make(map[string]int)
	fail := func(err error) (*Client, map[string]int, error) {
		for _, fd := range kept {
			closeFD(fd)
		}
		return nil, nil, errors.Join(err, c.Close())
	}
	if err := sameUser(c); err != nil {
		return fail(err)
	}
	if err := send(c, msgHello, hello(keep), -1); err != nil {
		return fail(err)
	}
	for {
		kind, body, fd, err := receive(c, patience)
		if err != nil {
			return fail(fmt.Errorf("keeper: no answer: %w", err))
		}
		switch {
		case kind == msgBusy:
			closeFD(fd)
			return fail(fmt.Errorf("%w (process %s)", ErrBusy, body))
		case kind == msgDone && fd < 0:
			return &Client{conn: c}, kept, nil
		case kind == msgRegion && fd >= 0 && goodName(body) && len(kept) < maxKept:
			if old, twice := kept[string(body)]; twice {
				closeFD(old)
			}
			kept[string(body)] = fd
		default:
			closeFD(fd)
			return fail(ErrProtocol)
		}
	}
}

// Put has the keeper keep a descriptor under a name. It stays the caller's.
func (c *Client) Put(name string, fd int) error { return c.ask(msgPut, name, fd) }

// Drop has the keeper let go of what it keeps under a name.
func (c *Client) Drop(name string) error { return c.ask(msgDrop, name, -1) }

func (c *Client) ask(kind byte, name string, fd int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	err := send(c.conn, kind, []byte(name), fd)
	if err == nil {
		var answer byte
		var extra int
		if answer, _, extra, err = receive(c.conn, patience); err == nil && (answer != msgDone || extra >= 0) {
			closeFD(extra)
			err = ErrProtocol
		}
	}
	if err != nil {
		c.err = fmt.Errorf("keeper: it does not answer any more: %w", err)
	}
	return c.err
}

// Close ends the connection: the keeper waits for the next node from here on.
func (c *Client) Close() error { return c.conn.Close() }

// Listen makes the socket of a keeper, in place of one that nobody listens at.
func Listen(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	defer ln.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	return ln.File()
}
