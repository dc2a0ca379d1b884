package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Redis are the settings of a redis-server. Everything else is Redis' default,
// except that it reads no file of the machine and writes no snapshot.
type Redis struct {
	// AppendFsync is "" for no append-only file, or "always": every answer waits
	// for fsync.
	AppendFsync string
	// Replicas is how many replicas it has, servers of the same settings.
	Replicas int
	// of is the address of the master of a replica, HOST and PORT apart; "" is a master.
	of string
}

// Start runs redis-server on a TCP port and a UNIX socket, and its replicas beside it. It
// returns when they have taken over what the master has, which is nothing, and follow it.
func (r Redis) Start(ctx context.Context, at Place) (*Server, error) {
	s, err := r.one(ctx, at)
	if err != nil || r.Replicas == 0 {
		return s, err
	}
	replica := r
	replica.of = strings.Replace(s.TCP, ":", " ", 1)
	for range r.Replicas {
		more, err := replica.one(ctx, at)
		if err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		s.Others = append(s.Others, more)
	}
	follow := func() error {
		// WAIT counts the replicas that follow.
		err := asks("tcp", s.TCP, fmt.Sprintf("WAIT %d 200\r\n", r.Replicas), fmt.Sprintf(":%d\r\n", r.Replicas))
		for _, replica := range s.Others {
			err = errors.Join(err, logged(replica.TCP))
		}
		return err
	}
	if err := s.await(ctx, follow); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// logged fails while a Redis still writes its log for the first time, as a replica does once it has
// what its master had: until then it syncs nothing, and takes no signal to end.
func logged(addr string) error {
	info, err := says("tcp", addr, "INFO persistence\r\n")
	if err != nil {
		return err
	}
	for _, want := range []string{"aof_rewrite_in_progress:0\r\n", "aof_rewrite_scheduled:0\r\n"} {
		if !strings.Contains(info, want) {
			return fmt.Errorf("%s still writes its log for the first time", addr)
		}
	}
	return nil
}

// one runs one redis-server.
func (r Redis) one(ctx context.Context, at Place) (*Server, error) {
	return again(func() (*Server, error) {
		s, port, err := prepare("redis-server", at)
		if err != nil {
			return nil, err
		}
		s.TCP, s.Unix = "127.0.0.1:"+port, filepath.Join(s.sockets, "s")
		args := []string{"--bind", "127.0.0.1", "--port", port, "--unixsocket", s.Unix, "--dir", s.Dir,
			"--save", "", "--daemonize", "no", "--loglevel", "warning"}
		if r.AppendFsync != "" {
			// Without rewrites of its log, which would fall into some turns and not into others.
			args = append(args, "--appendonly", "yes", "--appendfsync", r.AppendFsync, "--auto-aof-rewrite-percentage", "0")
		} else {
			args = append(args, "--appendonly", "no")
		}
		if r.Replicas > 0 {
			args = append(args, "--repl-diskless-sync-delay", "0") // a replica need not wait for others at the start
		}
		if r.of != "" {
			args = append(args, "--replicaof", r.of)
		}
		return s, s.run(ctx, args, func() error {
			return errors.Join(asks("tcp", s.TCP, "PING\r\n", "+PONG"), asks("unix", s.Unix, "PING\r\n", "+PONG"))
		})
	})
}

// Memcached are the settings of a memcached. The number of threads (4) is its
// default.
type Memcached struct {
	MemoryMB  int    // more than what is stored, so that nothing is evicted
	Unix      bool   // on a UNIX socket, and so not on TCP: memcached knows one of them
	LargestMB string // "" for its default of 1m, which a value of 1 MiB exceeds with its key
}

// Start runs memcached.
func (m Memcached) Start(ctx context.Context, at Place) (*Server, error) {
	return again(func() (*Server, error) {
		s, port, err := prepare("memcached", at)
		if err != nil {
			return nil, err
		}
		args := []string{"-m", fmt.Sprint(m.MemoryMB)}
		network, addr := "tcp", "127.0.0.1:"+port
		if m.Unix {
			s.Unix = filepath.Join(s.sockets, "s")
			network, addr = "unix", s.Unix
			args = append(args, "-s", s.Unix)
		} else {
			s.TCP = addr
			args = append(args, "-l", "127.0.0.1", "-p", port, "-U", "0")
		}
		if m.LargestMB != "" {
			args = append(args, "-I", m.LargestMB)
		}
		if os.Geteuid() == 0 {
			args = append(args, "-u", "root") // it refuses to choose
		}
		return s, s.run(ctx, args, func() error { return asks(network, addr, "version\r\n", "VERSION") })
	})
}

// prepare makes a server's directories and finds it a port.
func prepare(name string, at Place) (*Server, string, error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	s, err := at.server(name)
	return s, port, err
}

// run starts the program and waits until it answers. If it does not, nothing of
// it is left.
func (s *Server) run(ctx context.Context, args []string, ready func() error) error {
	err := start(s, s.Name, args, nil)
	if err == nil {
		if err = s.await(ctx, ready); err == nil {
			return nil
		}
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	return errors.Join(err, s.remove())
}

// again tries a start a few times: a port may have been taken in between.
func again(start func() (*Server, error)) (s *Server, err error) {
	for range tries {
		if s, err = start(); err == nil {
			return s, nil
		}
	}
	return nil, err
}
