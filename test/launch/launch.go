// Package launch runs nodes on another machine, by the agent of the lab there.
package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/lab/agent"
	"github.com/rdmakv/rdmakv/test/node"
)

// patience bounds what an agent is asked for, but for the life of a process.
const patience = 30 * time.Second

// A Remote starts processes by an agent. It is a node.Launcher.
type Remote struct{ c *agent.Client }

// Dial connects to the agent at a HOST:PORT.
func Dial(ctx context.Context, addr string) (*Remote, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := agent.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("the agent at %s: %w", addr, err)
	}
	return &Remote{c}, nil
}

// On makes a launcher of a connection to an agent, which stays the caller's.
func On(c *agent.Client) *Remote { return &Remote{c} }

// ReadFiles implements node.Launcher.
func (r *Remote) ReadFiles(pattern string) ([]byte, error) {
	if strings.ContainsAny(pattern, " \t\n'\"\\$;&|<>()`") {
		return nil, fmt.Errorf("the pattern %q has characters that a shell would understand", pattern)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, errOut bytes.Buffer
	_, err := r.c.Run(ctx, agent.Cmd{Args: []string{"sh", "-c", "cat " + pattern}}, &out, &errOut)
	if err != nil {
		return nil, err
	}
	if out.Len() == 0 {
		return nil, fmt.Errorf("%s: %s: %w", pattern, strings.TrimSpace(errOut.String()), os.ErrNotExist)
	}
	return out.Bytes(), nil
}

// Start implements node.Launcher.
func (r *Remote) Start(c node.Command) (node.Process, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := agent.Cmd{Args: append([]string{c.Path}, c.Args...), Env: c.Env}
	p, err := r.c.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	out := &process{p: p}
	out.copies.Go(func() { out.errs[0] = copyAll(c.Stdout, p.Stdout()) })
	out.copies.Go(func() { out.errs[1] = copyAll(c.Stderr, p.Stderr()) })
	return out, nil
}

type process struct {
	p      *agent.Process
	copies sync.WaitGroup
	errs   [2]error
}

func (p *process) PID() int { return p.p.Pid() }

func (p *process) Signal(s syscall.Signal) error {
	select {
	case <-p.p.Exited():
		return os.ErrProcessDone
	default:
		return p.p.Signal(s)
	}
}

func (p *process) Wait() (int, error) {
	err := p.p.Wait(context.Background())
	p.copies.Wait()
	var exit *agent.ExitError
	switch {
	case errors.As(err, &exit) && exit.Signal != 0:
		return -1, err
	case errors.As(err, &exit):
		return exit.Code, errors.Join(append(p.errs[:], err)...)
	case err != nil:
		return -1, err
	}
	return 0, errors.Join(p.errs[:]...)
}
