package agent

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
)

// Port is the TCP port at which the agent of a guest listens.
const Port = "7017"

// A Cmd is a program to start.
type Cmd struct {
	// Args are the program and its arguments. A program without a slash is
	// looked for in the PATH of the agent.
	Args []string
	// Env is added to the environment of the agent ("NAME=value").
	Env []string `json:",omitempty"`
	// Dir is the working directory; none means that of the agent, "/".
	Dir string `json:",omitempty"`
	// Terminal gives the program a terminal: one stream of output, at Stdout.
	Terminal bool `json:",omitempty"`
	// Input says that Stdin will be written. Without it the program reads
	// /dev/null.
	Input bool `json:",omitempty"`
}

// A Client starts programs at the other end of a connection. All its methods
// may be called at the same time.
type Client struct {
	conn *conn
	done chan struct{} // closed when the reader has ended

	mu       sync.Mutex
	programs map[uint32]*Process
	last     uint32
	err      error // why the connection ended
}

// Dial connects to the agent of a guest; addr is host:port, or a host alone.
func Dial(ctx context.Context, addr string) (*Client, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(addr, Port)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return NewClient(c), nil
}

// NewClient makes a client of a connection, which it owns from now on.
func NewClient(rw io.ReadWriteCloser) *Client {
	c := &Client{conn: &conn{rw: rw}, programs: map[uint32]*Process{}, done: make(chan struct{})}
	go c.read()
	return c
}

// Close ends the connection; the agent kills the programs that still run.
func (c *Client) Close() error {
	err := c.conn.rw.Close()
	<-c.done
	return err
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Start starts a program and waits until it runs. The caller must end it with
// Wait: until then it counts against MaxPrograms.
func (c *Client) Start(ctx context.Context, cmd Cmd) (*Process, error) {
	if len(cmd.Args) == 0 {
		return nil, errors.New("agent: no program to start")
	}
	body, err := json.Marshal(cmd)
	if err != nil {
		return nil, err
	}
	if len(body) > MaxBody {
		return nil, fmt.Errorf("agent: the command line and environment have %d bytes, at most %d", len(body), MaxBody)
	}
	p, err := c.add(cmd)
	if err != nil {
		return nil, err
	}
	if err := c.conn.send(kindStart, p.id, body...); err != nil {
		c.end(p, 0, 0, err)
		return nil, err
	}
	select {
	case <-p.started:
	case <-ctx.Done():
		go func() { // the program may still start, and no caller will know it
			<-p.started
			_ = p.Kill()
		}()
		return nil, ctx.Err()
	}
	if p.startErr != nil {
		return nil, p.startErr
	}
	return p, nil
}

func (c *Client) add(cmd Cmd) (*Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, fmt.Errorf("agent: connection lost: %w", c.err)
	}
	if len(c.programs) >= MaxPrograms {
		return nil, fmt.Errorf("agent: %d programs are running on this connection", len(c.programs))
	}
	c.last++
	p := &Process{client: c, id: c.last, started: make(chan struct{}), exited: make(chan struct{})}
	p.stdout = newInbox(func(n int) { c.conn.credit(p.id, stdout, n) })
	p.stderr = newInbox(func(n int) { c.conn.credit(p.id, stderr, n) })
	p.stdin = newOutbox(c.conn, p.id, stdin)
	if !cmd.Input {
		p.stdin.shut()
	}
	c.programs[p.id] = p
	return p, nil
}

// end records how a program ended; only the first call counts.
func (c *Client) end(p *Process, code int, sig syscall.Signal, err error) {
	c.mu.Lock()
	_, known := c.programs[p.id]
	delete(c.programs, p.id)
	c.mu.Unlock()
	if !known {
		return
	}
	// Only the goroutine that took p out of the map ends it.
	p.code, p.sig, p.err = code, sig, err
	p.stdin.shut()
	streamErr := err
	if streamErr == nil {
		streamErr = io.EOF
	}
	p.stdout.end(streamErr)
	p.stderr.end(streamErr)
	select {
	case <-p.started:
	default:
		p.startErr = err
		close(p.started)
	}
	close(p.exited)
}

// read handles what comes until the connection ends.
func (c *Client) read() {
	defer close(c.done)
	r := bufio.NewReaderSize(c.conn.rw, chunk)
	var err error
	for err == nil {
		var f frame
		if f, err = readFrame(r); err == nil {
			err = c.handle(f)
		}
	}
	c.conn.rw.Close()
	if err == io.EOF {
		err = errors.New("the agent has gone")
	}
	c.mu.Lock()
	c.err = err
	all := make([]*Process, 0, len(c.programs))
	for _, p := range c.programs {
		all = append(all, p)
	}
	c.mu.Unlock()
	for _, p := range all {
		c.end(p, 0, 0, fmt.Errorf("agent: connection lost: %w", err))
	}
}

func (c *Client) handle(f frame) error {
	c.mu.Lock()
	p, started := c.programs[f.program], f.program <= c.last
	c.mu.Unlock()
	if p == nil && f.kind == kindCredit && started {
		return nil // input crossed the end of the program on its way
	}
	if p == nil {
		return fmt.Errorf("%w: %v of unknown program %d", ErrProtocol, f.kind, f.program)
	}
	switch f.kind {
	case kindStarted:
		pid := int(int32(binary.BigEndian.Uint32(f.body)))
		c.mu.Lock() // against end, called by a Start whose write failed
		defer c.mu.Unlock()
		if p.pid != 0 || pid <= 0 {
			return fmt.Errorf("%w: program %d started twice, or as process %d", ErrProtocol, f.program, pid)
		}
		if c.programs[f.program] == p {
			p.pid = pid
			close(p.started)
		}
	case kindFailed:
		if p.pid != 0 {
			return fmt.Errorf("%w: program %d failed after its start", ErrProtocol, f.program)
		}
		c.end(p, 0, 0, fmt.Errorf("agent: %s", f.body))
	case kindData, kindEOF:
		in := p.stdout
		if f.body[0] == stderr {
			in = p.stderr
		} else if f.body[0] == stdin {
			return fmt.Errorf("%w: output at stream 0", ErrProtocol)
		}
		if f.kind == kindEOF {
			in.end(io.EOF)
			return nil
		}
		return in.put(f.body[1:])
	case kindCredit:
		return p.stdin.add(binary.BigEndian.Uint32(f.body[1:]))
	case kindExit:
		if p.pid == 0 {
			return fmt.Errorf("%w: program %d ended before its start", ErrProtocol, f.program)
		}
		c.end(p, int(int32(binary.BigEndian.Uint32(f.body))), syscall.Signal(f.body[4]), nil)
	default:
		return fmt.Errorf("%w: %v from the agent", ErrProtocol, f.kind)
	}
	return nil
}
