package servers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestParseLeader: one node that leads all groups is told; several, or none, are an error, because
// the processor time of one process would be taken for the leader's.
func TestParseLeader(t *testing.T) {
	for status, want := range map[string]string{
		`{"clustered":true,"groups":[{"id":1,"leader":"n2","term":3}]}`:      "n2",
		`{"groups":[{"id":1,"leader":"n3"},{"id":2,"leader":"n3"}]}`:         "n3",
		`{"groups":[{"id":1,"leader":"n3"},{"id":2,"leader":"n1"}]}`:         "",
		`{"groups":[{"id":1,"leader":""}]}`:                                  "",
		`{"groups":[{"id":1,"leader":"n1"},{"id":2,"leader":"","term":"x"}]`: "",
		`{"groups":[]}`: "",
		`{}`:            "",
		``:              "",
	} {
		got, err := parseLeader([]byte(status))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", status, got, err)
		}
	}
}

// sleeper is a process that does nothing, as a node of a cluster.
func sleeper(t *testing.T, at Place) *Server {
	t.Helper()
	s, err := at.server("sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := start(s, "/bin/sh", []string{"-c", "exec sleep 1000"}, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTogether: the nodes of a cluster begin and end together, one that has ended is told of, and
// if one does not start none is left.
func TestTogether(t *testing.T) {
	at := place(t)
	s, err := together(3, func(int) (*Server, error) { return sleeper(t, at), nil })
	if err != nil {
		t.Fatal(err)
	}
	if len(s.PIDs()) != 3 || len(s.OtherTCP()) != 2 || slices.Contains(s.PIDs()[1:], s.PID()) {
		t.Errorf("processes %v, addresses %v", s.PIDs(), s.OtherTCP())
	}
	if err := s.Alive(); err != nil {
		t.Error(err)
	}
	third := s.Others[1]
	if err := third.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-third.done
	if s.Alive() == nil {
		t.Error("a cluster of which one node has ended is taken for one that is whole")
	}
	if s.Stop() == nil {
		t.Error("nobody is told that a node had ended by itself")
	}

	none := errors.New("no room")
	var begun []*Server
	if s, err = together(2, func(i int) (*Server, error) {
		if i == 1 {
			return nil, none
		}
		begun = append(begun, sleeper(t, at))
		return begun[0], nil
	}); s != nil || !errors.Is(err, none) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, one := range begun {
		select {
		case <-one.done:
		default:
			t.Error("a node of a cluster that did not start is left")
		}
	}
	if left, err := os.ReadDir(at.Disk); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestCluster starts three kvservers in one group, and finds who leads them.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds kvserver and kvclient")
	}
	ctx, at, bin := context.Background(), place(t), t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/rdmakv/rdmakv/cmd/kvserver", "github.com/rdmakv/rdmakv/cmd/kvclient").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := Cluster{
		Rdmakv: Rdmakv{Bin: filepath.Join(bin, "kvserver"), Sync: "always", Wait: "adaptive", Memory: "256MiB"},
		Client: filepath.Join(bin, "kvclient"), Nodes: 3, Replicas: 3, Groups: 1,
	}
	s, err := c.Start(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	leader, err := c.Leader(ctx, s)
	if err != nil || !slices.Contains(s.PIDs(), leader.PID()) {
		t.Errorf("%v, %v", leader, err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	c.Client = filepath.Join(bin, "nobody")
	if s, err := c.Start(ctx, at); err == nil || !strings.Contains(err.Error(), "kvclient does not start") {
		t.Errorf("without kvclient: %+v, %v", s, err)
	}
	if left, err := os.ReadDir(at.Disk); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestCleanEnv: variables of whoever measures configure neither rdmakv nor etcd.
func TestCleanEnv(t *testing.T) {
	got := cleanEnv([]string{"PATH=/bin", "RDMAKV_SYNC=off", "ETCD_NAME=x", "ETCD_UNSUPPORTED_ARCH=arm64", "ETCDX=1"})
	if want := []string{"PATH=/bin", "ETCD_UNSUPPORTED_ARCH=arm64", "ETCDX=1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
