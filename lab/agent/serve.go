package agent

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// A Program is something that runs and whose output can be read: a process of
// this machine, or a *Process elsewhere, which is passed on.
type Program interface {
	Pid() int
	Stdin() io.WriteCloser
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	Signal(syscall.Signal) error
	SignalGroup(syscall.Signal) error
	Resize(rows, cols uint16) error
	// Wait returns nil, an *ExitError, or why the end is not known.
	Wait(context.Context) error
}

// A Starter starts programs for Serve.
type Starter func(context.Context, Cmd) (Program, error)

// Forward is a Starter that passes everything on to another agent.
func Forward(c *Client) Starter {
	return func(ctx context.Context, cmd Cmd) (Program, error) {
		p, err := c.Start(ctx, cmd)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// Serve runs programs for the client at the other end of rw, which it owns,
// until the connection ends; then it kills those that still run and returns.
// The error is nil if the client closed the connection between two frames.
func Serve(ctx context.Context, rw io.ReadWriteCloser, start Starter) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &session{conn: &conn{rw: rw}, start: start, ctx: ctx, programs: map[uint32]*served{}}
	stop := context.AfterFunc(ctx, func() { rw.Close() })
	defer stop()
	r := bufio.NewReaderSize(rw, chunk)
	var err error
	for err == nil {
		var f frame
		if f, err = readFrame(r); err == nil {
			err = s.handle(f)
		}
	}
	cancel()
	rw.Close()
	s.running.Wait()
	if err == io.EOF {
		err = nil
	}
	return err
}

// A session is one connection of a client.
type session struct {
	conn    *conn
	start   Starter
	ctx     context.Context // ends with the connection
	running sync.WaitGroup

	mu       sync.Mutex
	programs map[uint32]*served
}

// A served program has its streams on the connection.
type served struct {
	stdin  *inbox
	out    [2]*outbox // stdout, stderr
	up     chan struct{}
	prog   Program // set before up is closed, nil if it failed to start
	number uint32
}

func (s *session) handle(f frame) error {
	s.mu.Lock()
	p := s.programs[f.program]
	running := len(s.programs)
	s.mu.Unlock()
	if f.kind == kindStart {
		if p != nil || running >= MaxPrograms {
			return fmt.Errorf("%w: start of program %d beside %d", ErrProtocol, f.program, running)
		}
		var cmd Cmd
		if err := json.Unmarshal(f.body, &cmd); err != nil || len(cmd.Args) == 0 {
			return fmt.Errorf("%w: no command line (%v)", ErrProtocol, err)
		}
		s.add(f.program, cmd)
		return nil
	}
	if f.kind > kindResize || f.kind == kindStarted || f.kind == kindFailed || f.kind == kindExit {
		return fmt.Errorf("%w: %v from a client", ErrProtocol, f.kind)
	}
	if p == nil {
		return nil // it has ended while the frame was under way
	}
	switch f.kind {
	case kindData, kindEOF:
		if f.body[0] != stdin {
			return fmt.Errorf("%w: input at stream %d", ErrProtocol, f.body[0])
		}
		if f.kind == kindEOF {
			p.stdin.end(io.EOF)
			return nil
		}
		return p.stdin.put(f.body[1:])
	case kindCredit:
		if f.body[0] == stdin {
			return fmt.Errorf("%w: credit for input from its sender", ErrProtocol)
		}
		return p.out[f.body[0]-1].add(binary.BigEndian.Uint32(f.body[1:]))
	case kindSignal, kindResize:
		select {
		case <-p.up:
		default:
			// A client knows that the program runs before it signals it.
			return fmt.Errorf("%w: %v before the start", ErrProtocol, f.kind)
		}
		if p.prog == nil {
			return nil
		}
		switch {
		case f.kind == kindResize:
			_ = p.prog.Resize(binary.BigEndian.Uint16(f.body), binary.BigEndian.Uint16(f.body[2:]))
		case f.body[1] != 0:
			_ = p.prog.SignalGroup(syscall.Signal(f.body[0])) // fails only if it has just ended
		default:
			_ = p.prog.Signal(syscall.Signal(f.body[0]))
		}
	}
	return nil
}

func (s *session) add(number uint32, cmd Cmd) {
	p := &served{number: number, up: make(chan struct{})}
	p.stdin = newInbox(func(n int) { s.conn.credit(number, stdin, n) })
	p.out = [2]*outbox{newOutbox(s.conn, number, stdout), newOutbox(s.conn, number, stderr)}
	s.mu.Lock()
	s.programs[number] = p
	s.mu.Unlock()
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		s.run(p, cmd)
	}()
}

// run runs one program from its start to the frame that says how it ended.
func (s *session) run(p *served, cmd Cmd) {
	prog, err := s.start(s.ctx, cmd)
	if err != nil {
		close(p.up)
		s.forget(p)
		_ = s.conn.send(kindFailed, p.number, []byte(bounded(err.Error()))...)
		return
	}
	p.prog = prog
	close(p.up)
	stop := context.AfterFunc(s.ctx, func() {
		_ = prog.SignalGroup(syscall.SIGKILL)
		p.stdin.end(errGone)
		p.out[0].shut()
		p.out[1].shut()
	})
	defer stop()
	_ = s.conn.send(kindStarted, p.number, binary.BigEndian.AppendUint32(nil, uint32(prog.Pid()))...)

	var input, output sync.WaitGroup
	input.Go(func() {
		defer p.stdin.Close()
		_, _ = io.Copy(prog.Stdin(), p.stdin) // a program need not read its input
		prog.Stdin().Close()
	})
	for i, from := range []io.ReadCloser{prog.Stdout(), prog.Stderr()} {
		output.Go(func() {
			defer from.Close()
			_, _ = io.Copy(p.out[i], from) // fails with the connection, which read reports
			_ = p.out[i].Close()
		})
	}
	err = prog.Wait(context.Background()) // SIGKILL ends it with s.ctx
	output.Wait()
	p.stdin.end(errGone)
	input.Wait()
	s.forget(p)
	code, sig := status(err)
	_ = s.conn.send(kindExit, p.number, append(binary.BigEndian.AppendUint32(nil, uint32(int32(code))), byte(sig))...)
}

func (s *session) forget(p *served) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.programs, p.number)
}

// status is the inverse of Process.Wait.
func status(err error) (code int, sig syscall.Signal) {
	var exit *ExitError
	switch {
	case err == nil:
		return 0, 0
	case errors.As(err, &exit) && exit.Signal != 0:
		return 0, exit.Signal
	case errors.As(err, &exit):
		return exit.Code, 0
	}
	return 255, 0 // not known: never a success
}

func bounded(s string) string {
	const most = 4096
	if s == "" {
		return "no reason given"
	}
	return s[:min(len(s), most)]
}
