package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/test/node"
)

// Ports of every node.
const (
	DataPort   = 7400
	AdminPort  = 7480
	GossipPort = 7946
	// RoCEPort is where RoCE v2 goes (InfiniBand specification, annex 17).
	RoCEPort = 4791
)

// A Place is where a node can run: a host of package hosts, or a guest.
type Place interface {
	Name() string
	IP() string
	On() node.Launcher
}

// Options say what nodes a rig has. Zero fields mean their defaults.
type Options struct {
	Bin    string // directory of the programs, as the places see it
	Dir    string // directory of data and secrets
	Seen   string // that directory as the places see it; empty: the same
	Disk   string // directory of each place's own disk, with the data; empty: Dir has it
	Places []Place
	Fabric string        // default iwarp
	Lease  time.Duration // default 1 s, the shortest there is
	Memory string        // default 256MiB
	Args   []string      // more, for every node
	Open   bool          // no keys and no secret: --insecure
	Log    io.Writer     // gets what nodes write to standard error; may be nil
	Wait   time.Duration // for a node to be ready; 0: a minute
}

// A Rig is a cluster: one node on each place, n1 on the first.
type Rig struct {
	opt    Options
	Secret []byte // of clients; nil if Open
	Nodes  []*Server
}

// A Server is a kvserver that can be killed and started again.
type Server struct {
	ID  string
	rig *Rig
	dir string // of its data

	mu    sync.Mutex
	place Place
	bin   string // directory of its program; empty: the rig's
	node  *node.Node
	past  []string // standard error of earlier processes
}

// NewRig prepares the nodes, and starts none.
func NewRig(opt Options) (*Rig, error) {
	if opt.Fabric == "" {
		opt.Fabric = "iwarp"
	}
	if opt.Lease == 0 {
		opt.Lease = time.Second
	}
	if opt.Seen == "" {
		opt.Seen = opt.Dir
	}
	if opt.Memory == "" {
		opt.Memory = "256MiB"
	}
	r := &Rig{opt: opt}
	for i, p := range opt.Places {
		r.Nodes = append(r.Nodes, r.NewServer(fmt.Sprintf("n%d", i+1), p))
	}
	if opt.Open {
		return r, nil
	}
	r.Secret = []byte(rand.Text())
	key := make([]byte, 32)
	rand.Read(key)
	return r, errors.Join(
		os.WriteFile(r.SecretFile(), r.Secret, 0o600),
		os.WriteFile(r.keyFile(), []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600))
}

// NewServer is one more server, which is no member of anything yet.
func (r *Rig) NewServer(id string, p Place) *Server {
	return &Server{ID: id, rig: r, dir: filepath.Join(r.opt.Dir, id), place: p}
}

// seen is a path below Dir as the places see it.
func (r *Rig) seen(path string) string { return r.opt.Seen + strings.TrimPrefix(path, r.opt.Dir) }

// SecretFile is the file of the secret that clients share with the nodes.
func (r *Rig) SecretFile() string { return filepath.Join(r.opt.Dir, "secret") }

func (r *Rig) keyFile() string { return filepath.Join(r.opt.Dir, "gossip.key") }

// Node returns a node by its id.
func (r *Rig) Node(id string) *Server {
	for _, s := range r.Nodes {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Start starts all nodes at the same time.
func (r *Rig) Start(ctx context.Context) error {
	errs := make([]error, len(r.Nodes))
	var wg sync.WaitGroup
	for i, s := range r.Nodes {
		wg.Go(func() { errs[i] = s.Start(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close kills what is left.
func (r *Rig) Close() error {
	var errs []error
	for _, s := range r.Nodes {
		errs = append(errs, s.Kill())
	}
	return errors.Join(errs...)
}

// Addrs are the addresses of the nodes for clients.
func (r *Rig) Addrs() []string {
	var all []string
	for _, s := range r.Nodes {
		all = append(all, s.Addr())
	}
	return all
}

// Addr is the node's address for clients.
func (s *Server) Addr() string { return hostPort(s.Place().IP(), DataPort) }

func hostPort(ip string, port int) string { return net.JoinHostPort(ip, fmt.Sprint(port)) }

// Place is where the node runs, or ran last.
func (s *Server) Place() Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place
}

// MoveTo makes the next start one somewhere else, with the same data.
func (s *Server) MoveTo(p Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place = p
}

// RunBy makes the next start one of the program of another directory, with the same data; "": the rig's.
func (s *Server) RunBy(bin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bin = bin
}

// program is the kvserver of the next start.
func (s *Server) program() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return filepath.Join(cmp.Or(s.bin, s.rig.opt.Bin), "kvserver")
}

// Dir is the node's data directory, unless places have disks of their own.
func (s *Server) Dir() string { return s.dir }

// data is the data directory as the node sees it.
func (s *Server) data() string {
	if disk := s.rig.opt.Disk; disk != "" {
		return filepath.Join(disk, s.ID)
	}
	return s.rig.seen(s.Dir())
}

// Start starts the node and returns when it is ready. The arguments come behind
// the usual ones, and win.
func (s *Server) Start(ctx context.Context, more ...string) error {
	args := []string{"--node-id", s.ID, "--gossip-bind", hostPort(s.Place().IP(), GossipPort), "--join", strings.Join(s.rig.others(s), ",")}
	if !s.rig.opt.Open {
		args = append(args, "--gossip-key-file", s.rig.seen(s.rig.keyFile()), "--cluster-name", "test")
	}
	return s.start(ctx, append(args, more...))
}

// StartAlone starts the server without a name, as one that is no node of a cluster.
func (s *Server) StartAlone(ctx context.Context) error { return s.start(ctx, nil) }

func (s *Server) start(ctx context.Context, more []string) error {
	p, o := s.Place(), &s.rig.opt
	args := []string{
		"--data-dir", s.data(), "--listen", hostPort(p.IP(), DataPort), "--admin-listen", hostPort(p.IP(), AdminPort),
		"--fabric", o.Fabric, "--lease", o.Lease.String(), "--memory-limit", o.Memory, "--log-level", "info",
	}
	if o.Open {
		args = append(args, "--insecure")
	} else {
		args = append(args, "--secret-file", s.rig.seen(s.rig.SecretFile()))
	}
	n, err := node.Start(ctx, node.Options{
		Bin: s.program(), On: p.On(), Args: append(append(args, o.Args...), more...), Log: s.log(), Wait: o.Wait,
	})
	if err != nil {
		return fmt.Errorf("node %s on %s: %w", s.ID, p.Name(), err)
	}
	s.mu.Lock()
	s.node = n
	s.mu.Unlock()
	return nil
}

// others are the gossip addresses of the other nodes.
func (r *Rig) others(s *Server) []string {
	var all []string
	for _, o := range r.Nodes {
		if o != s {
			all = append(all, hostPort(o.Place().IP(), GossipPort))
		}
	}
	return all
}

func (s *Server) log() io.Writer {
	if s.rig.opt.Log == nil {
		return nil
	}
	return named{s.ID, s.rig.opt.Log}
}

// named writes a name before what it passes on.
type named struct {
	name string
	w    io.Writer
}

func (n named) Write(p []byte) (int, error) {
	if _, err := fmt.Fprintf(n.w, "%s: %s", n.name, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Process is the running process; nil if none was started.
func (s *Server) Process() *node.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// Kill ends the node by SIGKILL. One that does not run is left alone.
func (s *Server) Kill() error {
	n := s.Process()
	if n == nil {
		return nil
	}
	err := n.Kill()
	s.ended()
	return err
}

// ended keeps what the process said.
func (s *Server) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		s.past = append(s.past, s.node.Stderr())
		s.node = nil
	}
}

// Stop ends the node by SIGTERM. It must end well.
func (s *Server) Stop(limit time.Duration) error {
	n := s.Process()
	if n == nil {
		return fmt.Errorf("node %s does not run", s.ID)
	}
	code, err := n.Stop(limit)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, n.Stderr())
	}
	s.ended()
	if err != nil {
		return fmt.Errorf("node %s, SIGTERM: %w", s.ID, err)
	}
	return nil
}

// Signal sends a signal to the process.
func (s *Server) Signal(sig syscall.Signal) error {
	n := s.Process()
	if n == nil {
		return fmt.Errorf("node %s does not run", s.ID)
	}
	return n.Signal(sig)
}

// Said is what the node's processes wrote to standard error, the last of each.
func (s *Server) Said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Join(s.past, "")
	if s.node != nil {
		all += s.node.Stderr()
	}
	return all
}
