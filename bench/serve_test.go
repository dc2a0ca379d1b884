package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store"
)

// The other process of benchmarks with two: this test binary, started again
// with these set. It serves a directory until its standard input ends.
const (
	serveDir     = "RDMAKV_BENCH_SERVE_DIR"
	serveFabric  = "RDMAKV_BENCH_SERVE_FABRIC"
	serveSync    = "RDMAKV_BENCH_SERVE_SYNC"
	serveProfile = "RDMAKV_BENCH_SERVE_PROFILE" // file for its CPU profile; "" is none
	serveWait    = "RDMAKV_BENCH_SERVE_WAIT"    // wait.Mode; "" is adaptive
)

// warmChild, in the environment, has a process be the one that BenchmarkWarm kills, with so many keys: warmMain, where there are memfds.
const warmChild = "RDMAKV_BENCH_WARM_CHILD"

var warmMain func(keys string) error

func TestMain(m *testing.M) {
	if os.Getenv(serveDir) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(serveFloor) != "" {
		if err := floorMain(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if keys := os.Getenv(warmChild); keys != "" {
		fmt.Fprintln(os.Stderr, warmMain(keys)) // it is killed before
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A serving is how a server is started.
type serving struct {
	dir    string // it keeps its data in dir/data, and its sockets in dir/shm
	fabric string
	sync   store.SyncPolicy
	wait   wait.Mode
}

func (s serving) newFabric() rdma.Fabric {
	if s.fabric == "shm" {
		return shm.New(shm.Options{Dir: s.dir + "/shm"})
	}
	return iwarp.New(iwarp.Options{Wait: s.wait})
}

func (s serving) start() (*server.Server, error) {
	if err := os.MkdirAll(s.dir+"/shm", 0o700); err != nil {
		return nil, err
	}
	srv, err := server.New(server.Config{Fabric: s.newFabric(), DataDir: s.dir + "/data", Sync: s.sync, MemoryLimit: 1 << 30, HugePages: server.HugeAuto})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return srv, srv.Start(ctx)
}

func shutdown(srv *server.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return srv.Shutdown(ctx)
}

func serve() error {
	sync, err := strconv.Atoi(os.Getenv(serveSync))
	if err != nil {
		return err
	}
	mode, _ := strconv.Atoi(os.Getenv(serveWait))
	srv, err := serving{os.Getenv(serveDir), os.Getenv(serveFabric), store.SyncPolicy(sync), wait.Mode(mode)}.start()
	if err != nil {
		return err
	}
	if path := os.Getenv(serveProfile); path != "" {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Println(srv.Addrs()[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
	return shutdown(srv)
}

// shortDir is b.TempDir with a name that leaves room for those of sockets.
func shortDir(b *testing.B) string {
	dir, err := os.MkdirTemp("", "rkv")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	return dir
}

// A process is a server in a process of its own.
type process struct {
	addr string
	pid  int
}

// startProcess starts one over iWARP on a directory of its own.
func startProcess(b *testing.B, sync store.SyncPolicy) *process {
	b.Helper()
	return startServing(b, serving{dir: b.TempDir(), fabric: "iwarp", sync: sync})
}

// startServing starts one.
func startServing(b *testing.B, set serving) *process {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveDir+"="+set.dir, serveFabric+"="+set.fabric, serveSync+"="+strconv.Itoa(int(set.sync)))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return &process{addr: strings.TrimSpace(line), pid: cmd.Process.Pid}
}

// cpu is the processor time that the process has used.
func (p *process) cpu(b *testing.B) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // from the third on
	var ticks int64
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100 // USER_HZ
}
