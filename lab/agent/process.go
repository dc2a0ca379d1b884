package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// A Process is a program that Start has started. All its methods may be called
// at the same time.
type Process struct {
	client *Client
	id     uint32
	stdin  *outbox
	stdout *inbox
	stderr *inbox

	started  chan struct{} // closed once pid or startErr is set
	pid      int
	startErr error

	exited chan struct{} // closed once the three below are set
	code   int
	sig    syscall.Signal
	err    error
}

// Pid is the number of the process in the guest.
func (p *Process) Pid() int { return p.pid }

// Stdin writes to the standard input of a program started with Cmd.Input.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Stdout reads what the program writes. A program whose output is not read
// stops, as on a full pipe; Close drops the output from then on.
func (p *Process) Stdout() io.ReadCloser { return p.stdout }

// Stderr is Stdout for standard error.
func (p *Process) Stderr() io.ReadCloser { return p.stderr }

// Signal sends a signal to the process.
func (p *Process) Signal(sig syscall.Signal) error { return p.signal(sig, 0) }

// SignalGroup sends a signal to the process and to all that it started and
// that did not leave its process group, as a terminal does.
func (p *Process) SignalGroup(sig syscall.Signal) error { return p.signal(sig, 1) }

// Kill ends the process and its group with SIGKILL. It does not wait.
func (p *Process) Kill() error { return p.SignalGroup(syscall.SIGKILL) }

func (p *Process) signal(sig syscall.Signal, group byte) error {
	if sig < 0 || sig > 64 {
		return fmt.Errorf("agent: there is no signal %d", sig)
	}
	select {
	case <-p.exited:
		return errGone
	default:
		return p.client.conn.send(kindSignal, p.id, byte(sig), group)
	}
}

// Resize tells the terminal of the program its size.
func (p *Process) Resize(rows, cols uint16) error {
	body := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, rows), cols)
	return p.client.conn.send(kindResize, p.id, body...)
}

// An ExitError is how a program ended that did not end with code 0.
type ExitError struct {
	Code   int            // as given to exit; 128 + the signal if one ended it
	Signal syscall.Signal // 0 if none
}

func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("ended by signal %d (%v)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits for the end of the program: nil for exit code 0, *ExitError for
// any other, else why that is not known. The program's output can be read
// afterwards too. When ctx ends first its error is returned, and the program
// goes on.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case p.err != nil:
		return p.err
	case p.sig != 0:
		return &ExitError{Code: 128 + int(p.sig), Signal: p.sig}
	case p.code != 0:
		return &ExitError{Code: p.code}
	}
	return nil
}

// Run starts a program and copies its output as Copy does.
func (c *Client) Run(ctx context.Context, cmd Cmd, out, errOut io.Writer) (code int, err error) {
	p, err := c.Start(ctx, cmd)
	if err != nil {
		return 0, err
	}
	return p.Copy(ctx, out, errOut)
}

// Copy copies the output of a program as it comes (nil drops it) until it has
// ended, and returns its exit code. When ctx ends the program is killed and the
// error is that of ctx. A writer that fails does not stop the program; its
// error is returned at the end.
func (p *Process) Copy(ctx context.Context, out, errOut io.Writer) (code int, err error) {
	var copies sync.WaitGroup
	var writeErr [2]error
	for i, s := range []struct {
		to   io.Writer
		from *inbox
	}{{out, p.stdout}, {errOut, p.stderr}} {
		if s.to == nil {
			s.from.Close()
			continue
		}
		copies.Go(func() {
			defer s.from.Close()
			writeErr[i] = copyOut(s.to, s.from)
		})
	}
	err = p.Wait(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		_ = p.Kill()
		p.stdout.end(ctx.Err())
		p.stderr.end(ctx.Err())
	}
	copies.Wait()
	var exit *ExitError
	if errors.As(err, &exit) {
		return exit.Code, errors.Join(writeErr[:]...)
	}
	if err == nil {
		err = errors.Join(writeErr[:]...)
	}
	return 0, err
}

// copyOut is io.Copy for which the end of the connection, which Wait reports
// already, is no error of the writer.
func copyOut(w io.Writer, in *inbox) error {
	buf := make([]byte, chunk)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}
