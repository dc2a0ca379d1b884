package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// TestReplicas: the rows of replicas have a figure of each contender, whose programs are there, and
// tell of the others what is missing. All is started as for a whole run.
func TestReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds kvserver and kvclient, and starts clusters")
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/rdmakv/rdmakv/cmd/kvserver", "github.com/rdmakv/rdmakv/cmd/kvclient").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o, err := parse([]string{"-quick", "-rounds", "1", "-slice", "300ms", "-bin", bin, "-dir", t.TempDir(), "-root", "../.."}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	there := func(program string) bool {
		_, err := exec.LookPath(program)
		return err == nil
	}
	// All in one row, so that they share their servers.
	r := newRow("test", "Test", "A test.", rate())
	for _, from := range []*row{getReplicas(o), multiGetReplicas(o), putsReplicasMany(o)} {
		for _, c := range from.asked {
			if c.Name != sixteen { // as the others, and one cluster more
				c.Name = from.Name + ": " + c.Name
				r.add(c)
			}
		}
	}
	if err := r.run(context.WithoutCancel(t.Context()), o, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Contenders {
		missing := ""
		switch {
		case c.System == "etcd" && !there("etcd"):
			missing = "etcd is not installed"
		case c.System == redisReplicas && !there("redis-server"):
			missing = "redis-server"
		case c.System == redisReplicas && strings.Contains(c.Name, ", C") && !there("gcc"):
			missing = "cannot be compiled"
		}
		got := c.Rounds[0]
		if missing != "" {
			if !strings.Contains(got.Error, missing) {
				t.Errorf("%s: %q does not tell what is missing", c.Name, got.Error)
			}
			continue
		}
		if got.Error != "" || got.P50 <= 0 || got.Rate <= 0 || got.ServerCPU <= 0 {
			t.Errorf("%s: %+v", c.Name, got)
		}
		alone, leads := c.Name == "puts-replicas-50: "+oneNode, c.Name == "puts-replicas-50: "+oneGroup
		switch {
		case alone && got.LeaderCPU != got.ServerCPU:
			t.Errorf("%s: a node that is alone leads itself: %+v", c.Name, got)
		case leads && (got.LeaderCPU <= 0 || got.FollowerCPU <= 0 || got.LeaderCPU >= got.ServerCPU):
			t.Errorf("%s: who leads is not told apart: %+v", c.Name, got)
		case c.Kind == report.Ours && !alone && !leads && got.LeaderCPU != 0:
			t.Errorf("%s: one is told apart that does not lead all: %+v", c.Name, got)
		}
	}
	if r.Error != "" {
		t.Error(r.Error)
	}
}

// TestLeaderStays: a turn during which another node took over fails, and so does one of which
// nobody knows who leads.
func TestLeaderStays(t *testing.T) {
	unknown, broken := errors.New("nobody leads"), errors.New("the turn failed")
	for name, c := range map[string]struct {
		leaders []int // by the times that they are asked for; 0: nobody knows
		turn    error
		want    string
	}{
		"one leads":        {[]int{7, 7}, nil, ""},
		"another one":      {[]int{7, 8}, nil, "another node leads"},
		"nobody at first":  {[]int{0}, nil, unknown.Error()},
		"nobody behind it": {[]int{7, 0}, nil, unknown.Error()},
		"the turn":         {[]int{7}, broken, broken.Error()},
	} {
		asked, told := 0, 0
		_, err := underOne(func() (int, error) {
			asked++
			if pid := c.leaders[asked-1]; pid != 0 {
				return pid, nil
			}
			return 0, unknown
		}, func(leader int) (report.Sample, error) {
			told = leader
			return report.Sample{Ops: 1}, c.turn
		})
		if text := ""; err != nil {
			if text = err.Error(); c.want == "" || !strings.Contains(text, c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		} else if c.want != "" {
			t.Errorf("%s: no error, want %q", name, c.want)
		}
		if asked != len(c.leaders) || told != c.leaders[0] {
			t.Errorf("%s: the leader was asked for %d times, and the turn was told %d", name, asked, told)
		}
	}
}

// TestEtcdWorkerMissing: where the client of etcd cannot be built, the row tells why and starts no
// member in vain.
func TestEtcdWorkerMissing(t *testing.T) {
	o := options{root: t.TempDir(), dir: t.TempDir(), rounds: 1, slice: 10 * time.Millisecond, seed: 3, quick: true}
	r := newRow("test", "Test", "A test.", p50())
	r.add(etcd(jobs.Etcd{}, dataset{100, 64, "uniform"}, single("put")))
	if err := r.run(t.Context(), o, io.Discard); err != nil {
		t.Fatal(err)
	}
	got := r.Contenders[0].Rounds[0].Error
	if !strings.Contains(got, "the client of etcd cannot be built") || strings.Contains(got, o.root) || strings.Contains(got, "\n") {
		t.Errorf("error %q", got)
	}
}
