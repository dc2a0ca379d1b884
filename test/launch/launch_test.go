package launch

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/lab/agent"
	"github.com/rdmakv/rdmakv/test/node"
)

// remote is a launcher over an agent at the other end of a pipe.
func remote(t *testing.T) *Remote {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = agent.Serve(t.Context(), theirs, agent.Local)
	}()
	c := agent.NewClient(ours)
	t.Cleanup(func() {
		_ = c.Close()
		<-done
	})
	return On(c)
}

func TestProcess(t *testing.T) {
	r := remote(t)
	var out, errOut bytes.Buffer
	p, err := r.Start(node.Command{Path: "/bin/sh", Args: []string{"-c", "echo $WORD; echo err >&2; exit 7"}, Env: []string{"WORD=hello"}, Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := p.Wait(); code != 7 || out.String() != "hello\n" || errOut.String() != "err\n" {
		t.Errorf("code %d, output %q, %q", code, out.String(), errOut.String())
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to a process that is gone: %v", err)
	}
}

func TestSignal(t *testing.T) {
	r := remote(t)
	p, err := r.Start(node.Command{Path: "/bin/sleep", Args: []string{"600"}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := r.ReadFiles("/proc/" + strconv.Itoa(p.PID()) + "/comm")
	if err != nil || strings.TrimSpace(string(data)) != "sleep" {
		t.Errorf("comm is %q, %v", data, err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(); code != -1 || err == nil {
		t.Errorf("code %d, %v, want -1 and how it ended", code, err)
	}
	if _, err := r.ReadFiles("/nonexistent/*"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading what is not there: %v", err)
	}
	if _, err := r.ReadFiles("/proc/self/stat; reboot"); err == nil {
		t.Error("a pattern with a command in it was taken")
	}
}
