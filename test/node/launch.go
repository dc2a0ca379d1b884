package node

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A Launcher starts processes somewhere: on this machine, or on another one
// through an agent there.
type Launcher interface {
	Start(Command) (Process, error)
	// ReadFiles reads the small files there that a pattern fits (path.Match),
	// such as some of /proc, one after the other. A file that is gone by then
	// is left out; none at all is os.ErrNotExist.
	ReadFiles(pattern string) ([]byte, error)
}

// A Command is a process to be started.
type Command struct {
	Path string
	Args []string // without the program's name
	Env  []string // variables beside those of the launcher, of which RDMAKV_ ones are left out
	// Both are written to until Wait has returned.
	Stdout, Stderr io.Writer
}

// A Process is one that was started.
type Process interface {
	PID() int
	// Signal answers os.ErrProcessDone when the process is gone.
	Signal(syscall.Signal) error
	// Wait returns the exit code, -1 after a signal, once the process is gone
	// and its output was delivered. It is called once.
	Wait() (code int, err error)
}

// Local starts processes on this machine, from the thread that calls.
func Local() Launcher { return local{} }

type local struct{}

func (local) ReadFiles(pattern string) (all []byte, err error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	found := false
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended, most likely
		}
		all, found = append(all, data...), true
	}
	if !found {
		return nil, fmt.Errorf("%s: %w", pattern, os.ErrNotExist)
	}
	return all, nil
}

func (local) Start(c Command) (Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(CleanEnv(os.Environ()), c.Env...)
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	// It has its own group: a Ctrl-C at the terminal is for the program that
	// started us, which ends the node in the way that is being tested.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return localProcess{cmd}, nil
}

type localProcess struct{ cmd *exec.Cmd }

func (p localProcess) PID() int                      { return p.cmd.Process.Pid }
func (p localProcess) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

func (p localProcess) Wait() (int, error) {
	err := p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode(), err
}
