package servers

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func place(t *testing.T) Place {
	t.Helper()
	sockets, err := os.MkdirTemp("", "kvc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	return Place{Disk: t.TempDir(), Sockets: sockets}
}

func TestParseCPU(t *testing.T) {
	const line = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 12 30 4 5 20 0 1 0 99"
	if got, err := parseCPU(line); err != nil || got != 420*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "7 (a S 1", "7 (a) S 1 2", strings.Replace(line, " 12 30 ", " x 30 ", 1)} {
		if got, err := parseCPU(bad); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
	if _, err := CPU(os.Getpid()); err != nil {
		t.Error(err)
	}
}

func TestParseResident(t *testing.T) {
	all, private, err := parseResident("Name:\tx\nVmRSS:\t  10 kB\nRssAnon:\t 4 kB\n")
	if err != nil || all != 10<<10 || private != 4<<10 {
		t.Error(all, private, err)
	}
	for _, bad := range []string{"", "VmRSS: 10 kB\n", "VmRSS: x kB\nRssAnon: 1 kB\n"} {
		if _, _, err := parseResident(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestReadyLine(t *testing.T) {
	var s Server
	if err := s.parseReady("ready data=127.0.0.1:7400 admin=x fabrics=shm,iwarp"); err != nil || s.TCP != "127.0.0.1:7400" || s.Fabrics != "shm,iwarp" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := new(Server).parseReady("ready"); err == nil {
		t.Error("a line without an address is ready")
	}
}

// TestProcess: a server that ends by itself is reported with its last output,
// one that runs is ended, and neither leaves a directory.
func TestProcess(t *testing.T) {
	at := place(t)
	s, err := at.server("sh")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 4)
	if err := start(s, "/bin/sh", []string{"-c", "echo hello; echo no luck >&2; exit 3"}, func(l string) { lines <- l }); err != nil {
		t.Fatal(err)
	}
	err = s.await(context.Background(), func() error { return os.ErrNotExist })
	if err == nil || !strings.Contains(err.Error(), "no luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v", err)
	}
	if got := <-lines; got != "hello" {
		t.Errorf("line %q", got)
	}
	if s.Alive() == nil || s.Stop() == nil {
		t.Error("a process that has ended by itself is taken for one that was stopped")
	}

	s, err = at.server("sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := start(s, "/bin/sh", []string{"-c", "cd " + s.Dir + "; exec sleep 1000"}, nil); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(s.Command, at.Disk) {
		t.Errorf("the command %q tells a directory of this machine", s.Command)
	}
	if err := s.Alive(); err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{at.Disk, at.Sockets} {
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
}

// TestPeers starts what is installed.
func TestPeers(t *testing.T) {
	ctx := context.Background()
	at := place(t)
	for name, f := range map[string]func() (*Server, error){
		"redis-server": func() (*Server, error) { return Redis{AppendFsync: "always"}.Start(ctx, at) },
		"redis-server and replicas": func() (*Server, error) {
			return Redis{AppendFsync: "always", Replicas: 2}.Start(ctx, at)
		},
		"etcd, three members": func() (*Server, error) { return Etcd{Members: 3}.Start(ctx, at) },
		"memcached over TCP":  func() (*Server, error) { return Memcached{MemoryMB: 64}.Start(ctx, at) },
		"memcached over UNIX": func() (*Server, error) { return Memcached{MemoryMB: 64, Unix: true, LargestMB: "2m"}.Start(ctx, at) },
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == ',' })[0]); err != nil {
				t.Skip("not installed; scripts/bench-compare installs it")
			}
			s, err := f()
			if err != nil {
				t.Fatal(err)
			}
			for _, pid := range s.PIDs() {
				if _, err := CPU(pid); err != nil {
					t.Error(err)
				}
			}
			if want := map[bool]int{true: 3, false: 1}[strings.Contains(name, "replicas") || strings.Contains(name, "members")]; len(s.PIDs()) != want {
				t.Errorf("%d processes, want %d", len(s.PIDs()), want)
			}
			if name == "redis-server and replicas" {
				for _, one := range s.nodes() {
					if !strings.Contains(one.Command, "--appendfsync always") {
						t.Errorf("a node does not sync: %s", one.Command)
					}
				}
			}
			// A rewrite of the log would fall into some turns and not into others.
			if name == "redis-server" && !strings.Contains(s.Command, "--auto-aof-rewrite-percentage 0") {
				t.Errorf("Redis rewrites its log: %s", s.Command)
			}
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	if left, err := os.ReadDir(at.Disk); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestStartOn: the process has one processor, and this one has all it had.
func TestStartOn(t *testing.T) {
	cores := Cores()
	if cores == nil {
		t.Skip("processors cannot be told here")
	}
	var out strings.Builder
	cmd := exec.Command("grep", "Cpus_allowed_list", "/proc/self/status")
	cmd.Stdout = &out
	last := cores[len(cores)-1]
	if err := StartOn(cmd, last); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(out.String())[1]; got != strconv.Itoa(last) {
		t.Errorf("it may run on %s, want %d", got, last)
	}
	if after := Cores(); !slices.Equal(after, cores) {
		t.Errorf("this process may run on %v, before that %v", after, cores)
	}
	if StartOn(exec.Command("true"), NoCore) == nil {
		t.Error("started on a processor that is not there")
	}
}
