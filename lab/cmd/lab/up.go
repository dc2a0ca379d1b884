package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/agent"
)

// Guests that stay belong to a process in the background, "lab serve". Their
// directory of sockets has one per guest for programs (agent1, agent2, ...),
// which speak the agent's protocol, and one for control, which takes a line and
// answers a line. Only the user who started them can reach it.

// stateDir is where the sockets of the guests called name are. Paths of
// sockets are short (108 bytes), so it is not in the checkout, but belongs to it.
func stateDir(name string) (string, error) {
	root, err := lab.Root()
	if err != nil {
		return "", err
	}
	base := filepath.Join(os.TempDir(), fmt.Sprintf("rdmakv-lab-%d-%.4x", os.Getuid(), sha256.Sum256([]byte(root))))
	if err := os.Mkdir(base, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(base)
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Getuid() || info.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("%s is not a directory of yours alone", base)
	}
	return filepath.Join(base, name), nil
}

// upCommand starts "lab serve" and waits until its guests are up.
func upCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	if err := serveFlags(fs).parse(args); err != nil {
		return 2, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	if self, err = keep(self); err != nil {
		return 1, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 1, err
	}
	defer r.Close()
	cmd := exec.Command(self, append([]string{"serve"}, args...)...)
	cmd.Stdout = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return 1, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := lines.Text()
		if why, failed := strings.CutPrefix(line, "failed: "); failed {
			rest, _ := io.ReadAll(r)
			return 1, errors.New(why + string(rest))
		}
		fmt.Fprintln(os.Stderr, line)
		if strings.HasPrefix(line, "ready: ") {
			return 0, nil
		}
	}
	return 1, fmt.Errorf("the guests did not come up: %v", cmd.Wait())
}

// keep copies a program that "go run" will remove.
func keep(self string) (string, error) {
	if !strings.Contains(self, "go-build") {
		return self, nil
	}
	root, err := lab.Root()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "lab")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(dir, fmt.Sprintf("lab-%.6x", sha256.Sum256(data)))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	return file, renameio.WriteFile(file, data, 0o755, renameio.WithTempDir(dir))
}

// A server is what the flags of up and serve ask for.
type server struct {
	fs     *flag.FlagSet
	config lab.Config
	name   *string
	guests *int
	life   *time.Duration
}

func serveFlags(fs *flag.FlagSet) *server {
	s := &server{fs: fs}
	guestFlags(fs, &s.config, 1024)
	s.name = fs.String("name", "lab", "name of these guests, for exec and down")
	s.guests = fs.Int("guests", 1, "how many, on one virtual Ethernet")
	s.life = fs.Duration("for", 2*time.Hour, "they end by themselves after so long")
	return s
}

func (s *server) parse(args []string) error {
	if err := s.fs.Parse(args); err != nil {
		return err
	}
	if s.fs.NArg() > 0 {
		return fmt.Errorf("what is %q?", s.fs.Arg(0))
	}
	return nil
}

// serveCommand boots guests and serves them until it is told to stop.
func serveCommand(ctx context.Context, fs *flag.FlagSet, args []string) (int, error) {
	s := serveFlags(fs)
	if err := s.parse(args); err != nil {
		return 2, err
	}
	s.config.Progress = lab.PrintTo(os.Stdout)
	if err := s.serve(ctx); err != nil {
		fmt.Println("failed:", err)
		return 1, nil
	}
	return 0, nil
}

// serve boots the guests, listens at the sockets, and ends with ctx, with "down", when
// the time of the guests is over, or when all of them have ended.
func (s *server) serve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, *s.life)
	defer cancel()
	dir, err := stateDir(*s.name)
	if err != nil {
		return err
	}
	if c, err := net.Dial("unix", filepath.Join(dir, "control")); err == nil {
		c.Close()
		return fmt.Errorf("guests called %s are up already (lab down -name %s)", *s.name, *s.name)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := shareDir(&s.config, *s.name); err != nil {
		return err
	}
	cluster, err := lab.NewCluster(ctx, *s.guests, s.config)
	if err != nil {
		return err
	}
	defer cluster.Close()
	for i := range *s.guests {
		l, err := net.Listen("unix", filepath.Join(dir, fmt.Sprintf("agent%d", i+1)))
		if err != nil {
			return err
		}
		defer l.Close()
		go accept(l, func(c net.Conn) {
			// Whichever end is at fault, the other programs go on.
			_ = agent.Serve(ctx, c, agent.Forward(cluster.Guest(i+1).Agent()))
		})
	}
	control, err := net.Listen("unix", filepath.Join(dir, "control"))
	if err != nil {
		return err
	}
	defer control.Close()
	go accept(control, func(c net.Conn) { answer(ctx, cancel, cluster, c) })
	fmt.Printf("ready: %d guest(s) called %s, %s is /mnt; they end after %v\n", *s.guests, *s.name, s.config.Dir, *s.life)
	// The standard output has no reader any more: a write to it must not end us.
	signal.Ignore(syscall.SIGPIPE)
	select {
	case <-ctx.Done():
	case <-cluster.AllDone():
	}
	return nil
}

// accept calls handle for each connection, on a goroutine of its own, until l is
// closed.
func accept(l net.Listener, handle func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go handle(c)
	}
}
