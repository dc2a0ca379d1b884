package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Rdmakv are the settings of a kvserver. All else is its default.
type Rdmakv struct {
	Bin    string // path of kvserver
	Sync   string // always, interval or off
	Wait   string // adaptive, poll or event
	Memory string // memory_limit
	Shm    bool   // serve shared memory beside iWARP
	Cache  bool   // mode: cache, which has neither a directory nor syncs
	More   []string
}

// Start runs kvserver.
func (r Rdmakv) Start(ctx context.Context, at Place) (*Server, error) {
	s, err := at.server("kvserver")
	if err != nil {
		return nil, err
	}
	if err := r.launch(ctx, s); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// launch runs kvserver on the store in s.Dir and waits for its ready line.
func (r Rdmakv) launch(ctx context.Context, s *Server) error {
	args := []string{"--listen", "127.0.0.1:0", "--admin-listen", "", "--log-level", "warn",
		"--memory-limit", r.Memory, "--wait-mode", r.Wait}
	if r.Cache {
		args = append(args, "--mode", "cache")
	} else {
		args = append(args, "--data-dir", filepath.Join(s.Dir, "data"), "--sync", r.Sync)
	}
	if r.Shm {
		s.ShmDir = s.sockets
		args = append(args, "--fabric", "auto", "--shm-dir", s.ShmDir)
	} else {
		args = append(args, "--fabric", "iwarp")
	}
	args = append(args, r.More...)
	var mu sync.Mutex
	ready := ""
	err := start(s, r.Bin, args, func(line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(line, "ready ") {
			ready = line
		}
	})
	if err != nil {
		return err
	}
	err = s.await(ctx, func() error {
		mu.Lock()
		defer mu.Unlock()
		if ready == "" {
			return errors.New("no ready line yet")
		}
		return s.parseReady(ready)
	})
	if err == nil && r.Shm && !strings.Contains(s.Fabrics, "shm") {
		err = fmt.Errorf("kvserver serves %q and no shared memory", s.Fabrics)
	}
	if err != nil {
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	return err
}

// parseReady takes the addresses from "ready data=HOST:PORT ... fabrics=...".
func (s *Server) parseReady(line string) error {
	for _, field := range strings.Fields(line) {
		if v, ok := strings.CutPrefix(field, "data="); ok {
			s.TCP = v
		}
		if v, ok := strings.CutPrefix(field, "fabrics="); ok {
			s.Fabrics = v
		}
	}
	if s.TCP == "" {
		return fmt.Errorf("no address in %q", line)
	}
	return nil
}

// Restart ends the process with a signal, SIGTERM or SIGKILL, and runs it again
// on the same store; begin is called in between. It returns when the ready line
// is there.
func (r Rdmakv) Restart(ctx context.Context, s *Server, sig syscall.Signal, begin func()) error {
	if err := s.end(sig); err != nil {
		return err
	}
	begin()
	return r.launch(ctx, s)
}
