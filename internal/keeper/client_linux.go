package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// ErrBusy: another process has the memory.
var ErrBusy = errors.New("keeper: the memory is in use by another process")

// A Client is a node's connection to its keeper, and its right to the directory. Safe for concurrent use.
//
// If the keeper ends, or does not answer, that is final: the client puts it out of reach (unreach), because a keeper that does not know what the node did since
// must not be found by the next one.
type Client struct {
	conn    *net.UnixConn
	answers chan struct{} // of the keeper, one at a time
	gone    chan struct{} // closed when there is no keeper any more
	pid     int
	path    string   // of the socket
	lock    *os.File // nil in tests of the connection alone

	asking sync.Mutex // held by who waits for an answer

	mu     sync.Mutex
	err    error // the first one
	closed bool
}

// connect connects to the keeper that listens at path, and returns what it keeps, by name; the descriptors are the caller's. uid is the user whose
// keeper it must be. It fails with ErrBusy while another process has the memory, and ends by the deadline.
func connect(path string, keep time.Duration, uid int, deadline time.Time) (*Client, map[string]int, error) {
	// A link could lead to the keeper of another directory.
	if st, err := os.Lstat(path); err != nil {
		return nil, nil, err
	} else if st.Mode().Type() != os.ModeSocket {
		return nil, nil, fmt.Errorf("keeper: %s is no socket", path)
	}
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, nil, err
	}
	return greet(c, path, keep, uid, deadline)
}

// greet is connect behind the connection, which it closes after an error.
func greet(c *net.UnixConn, path string, keep time.Duration, uid int, deadline time.Time) (*Client, map[string]int, error) {
	kept := make(map[string]int)
	fail := func(err error) (*Client, map[string]int, error) {
		for _, fd := range kept {
			closeFD(fd)
		}
		return nil, nil, errors.Join(err, c.Close())
	}
	keeper, err := peerOf(c)
	if err == nil {
		err = keeper.trusted(uid)
	}
	if err == nil {
		err = send(c, message{kind: msgHello, keep: keep}, -1, deadline)
	}
	if err != nil {
		return fail(err)
	}
	for {
		m, fd, err := receive(c, deadline)
		switch {
		case err != nil:
			return fail(fmt.Errorf("keeper: process %d does not hand over what it keeps: %w", keeper.pid, err))
		case m.kind == msgBusy:
			return fail(fmt.Errorf("%w (process %d)", ErrBusy, m.pid))
		case m.kind == msgDone:
			client := &Client{conn: c, answers: make(chan struct{}, 1), gone: make(chan struct{}), pid: keeper.pid, path: path}
			go client.read()
			return client, kept, nil
		case m.kind == msgRegion && len(kept) < maxKept:
			if old, twice := kept[m.name]; twice {
				closeFD(old)
			}
			kept[m.name] = fd
		default:
			closeFD(fd)
			return fail(ErrProtocol)
		}
	}
}

// read takes the keeper's answers until it is gone.
func (c *Client) read() {
	defer close(c.gone)
	for {
		m, fd, err := receive(c.conn, time.Time{})
		closeFD(fd)
		if err == nil && m.kind != msgDone {
			err = ErrProtocol
		}
		if err == nil {
			select {
			case c.answers <- struct{}{}:
				continue
			default: // nobody has asked
				err = ErrProtocol
			}
		}
		c.end(err)
		return
	}
}

// end ends the connection for a reason, the first time.
func (c *Client) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = fmt.Errorf("keeper: it is gone, or does not answer any more: %w", why)
	if !c.closed {
		c.err = errors.Join(c.err, unreach(c.path), c.conn.Close())
	}
}

// Gone is closed when there is no keeper any more, also after Close.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Err says why the keeper is gone, and nil as long as it is there or if Close was called before.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	return c.err
}

// PID is the keeper's process.
func (c *Client) PID() int { return c.pid }

// Put has the keeper keep a descriptor under a name. It stays the caller's.
func (c *Client) Put(name string, fd int) error { return c.ask(message{kind: msgPut, name: name}, fd) }

// Drop has the keeper let go of what it keeps under a name.
func (c *Client) Drop(name string) error { return c.ask(message{kind: msgDrop, name: name}, -1) }

// ask asks the keeper for something and waits for its answer, patience at most.
func (c *Client) ask(m message, fd int) error {
	c.asking.Lock()
	defer c.asking.Unlock()
	select {
	case <-c.gone:
		return c.failed()
	case <-c.answers:
		c.end(ErrProtocol) // to nothing
		return c.failed()
	default:
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	if err := send(c.conn, m, fd, time.Now().Add(patience)); err != nil {
		c.end(err)
		return c.failed()
	}
	select {
	case <-c.answers:
		return nil
	case <-c.gone:
	case <-deadline.C:
		c.end(context.DeadlineExceeded)
	}
	return c.failed()
}

func (c *Client) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection: the keeper waits for the next node from here on.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	err := c.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	<-c.gone
	if c.lock != nil {
		err = errors.Join(err, c.lock.Close())
	}
	return err
}
