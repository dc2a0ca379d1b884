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
	"github.com/rdmakv/rdmakv/store"
)

// The other process of benchmarks with two: this test binary, started again
// with these set. It serves a directory until its standard input ends.
const (
	serveDir     = "RDMAKV_BENCH_SERVE_DIR"
	serveSync    = "RDMAKV_BENCH_SERVE_SYNC"
	serveProfile = "RDMAKV_BENCH_SERVE_PROFILE" // file for its CPU profile; "" is none
	serveWait    = "RDMAKV_BENCH_SERVE_WAIT"    // rdma.WaitMode; "" is adaptive
)

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
	os.Exit(m.Run())
}

func serve() error {
	sync, err := strconv.Atoi(os.Getenv(serveSync))
	if err != nil {
		return err
	}
	wait, _ := strconv.Atoi(os.Getenv(serveWait))
	srv, err := server.New(server.Config{
		Fabric: iwarp.New(iwarp.Options{Wait: rdma.WaitMode(wait)}), DataDir: os.Getenv(serveDir), Sync: store.SyncPolicy(sync), MemoryLimit: 1 << 30,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
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
	ctx, cancel = context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return srv.Shutdown(ctx)
}

// A process is a server in a process of its own.
type process struct {
	addr string
	pid  int
}

// startProcess starts one on a directory of its own.
func startProcess(b *testing.B, sync store.SyncPolicy) *process {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveDir+"="+b.TempDir(), serveSync+"="+strconv.Itoa(int(sync)))
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
