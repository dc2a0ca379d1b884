package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/agent"
)

// TestCluster boots three guests and does to their network, and to them, what
// can be done.
func TestCluster(t *testing.T) {
	needLab(t)
	if os.Getenv("RDMAKV_CLUSTER") == "" {
		t.Skip("boots three guests: make lab-cluster runs it (RDMAKV_CLUSTER=1)")
	}
	p := &progress{t: t}
	dir := t.TempDir()
	for n := range 3 {
		if err := lab.NewDisk(filepath.Join(dir, fmt.Sprintf("g%d-disk", n+1)), 64); err != nil {
			t.Fatal(err)
		}
	}
	c, err := lab.NewCluster(t.Context(), 3, lab.Config{Memory: 512, Dir: dir, Disk: filepath.Join(dir, "disk"), Timeout: 2 * patience, Progress: p.add})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	one := c.Guest(1)
	t.Run("RDMA from guest to guest", func(t *testing.T) { rping(t, c, 200) })
	t.Run("agents over TCP", func(t *testing.T) { inGuest(t, one, "TestInsideAgents") })
	t.Run("cut", func(t *testing.T) {
		reachable(t, c, 1, 2, true)
		c.Switch.Cut(1, 2)
		reachable(t, c, 1, 2, false)
		reachable(t, c, 1, 3, true) // the third hears both
		reachable(t, c, 2, 3, true)
		c.Switch.Heal()
		reachable(t, c, 1, 2, true)
	})
	t.Run("cut one way", func(t *testing.T) {
		// A request reaches guest 2 and its answer does not come back: only the
		// receiver's counter tells this from a cut in both directions.
		before := received(t, c, 2)
		c.Switch.CutOneWay(2, 1)
		reachable(t, c, 1, 2, false)
		if after := received(t, c, 2); after <= before {
			t.Errorf("guest 2 had received %d pings and has received %d", before, after)
		}
		c.Switch.Heal()
		c.Switch.CutOneWay(1, 2)
		before = received(t, c, 2)
		reachable(t, c, 1, 2, false)
		if after := received(t, c, 2); after != before {
			t.Errorf("guest 2 had received %d pings and has received %d", before, after)
		}
		c.Switch.Heal()
		reachable(t, c, 1, 2, true)
	})
	t.Run("loss", func(t *testing.T) {
		c.Switch.Lose(1, 2, 0.3)
		before := c.Switch.Counters(2)
		out := output(t, one, "sh", "-c", "ping -c 60 -i 0.05 -W 2 g2 || true")
		after := c.Switch.Counters(2)
		if after.Dropped == before.Dropped || after.Out == before.Out {
			t.Errorf("of the frames to guest 2 %d were lost and %d were not: %s", after.Dropped-before.Dropped, after.Out-before.Out, out)
		}
		// RC repairs losses, but after a time-out of some seconds each.
		before = after
		c.Switch.Lose(1, 2, 0.04)
		rping(t, c, 20)
		t.Logf("%d frames to guest 2 were lost below rping", c.Switch.Counters(2).Dropped-before.Dropped)
		c.Switch.Heal()
	})
	t.Run("cable", func(t *testing.T) {
		if err := c.Guest(2).SetLink(false); err != nil {
			t.Fatal(err)
		}
		reachable(t, c, 1, 2, false)
		if err := c.Guest(2).SetLink(true); err != nil {
			t.Fatal(err)
		}
		reachable(t, c, 1, 2, true)
	})
	t.Run("pause", func(t *testing.T) {
		if err := c.Guest(2).Pause(); err != nil {
			t.Fatal(err)
		}
		reachable(t, c, 1, 2, false)
		if err := c.Guest(2).Continue(); err != nil {
			t.Fatal(err)
		}
		reachable(t, c, 1, 2, true)
	})
	t.Run("kill", func(t *testing.T) {
		output(t, c.Guest(2), "sh", "-c", "echo kept >/data/kept; sync")
		if err := c.Guest(2).Kill(); err != nil {
			t.Fatal(err)
		}
		reachable(t, c, 1, 2, false)
		reachable(t, c, 1, 3, true)
		select {
		case <-c.AllDone():
			t.Error("all guests are said to have ended")
		default:
		}
	})
	t.Run("boot anew", func(t *testing.T) {
		if err := c.Reboot(within(t), 1); err == nil {
			t.Error("a guest that runs was booted")
		}
		if err := c.Reboot(within(t), 2); err != nil {
			t.Fatal(err)
		}
		reachable(t, c, 1, 2, true)
		rping(t, c, 20)
		if out := output(t, c.Guest(2), "cat", "/data/kept"); out != "kept\n" {
			t.Errorf("its disk has %q", out)
		}
		if err := c.Guest(2).Kill(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.AllDone():
			t.Error("all guests are said to have ended")
		default:
		}
	})
	for _, n := range []int{1, 3} {
		if err := c.Guest(n).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	<-c.AllDone()
	if err := c.Reboot(within(t), 2); err == nil {
		t.Error("a guest was booted, and AllDone is closed")
	}
}

// rping runs verified round trips of READ and WRITE between guests 1 and 2.
func rping(t *testing.T, c *lab.Cluster, rounds int) {
	t.Helper()
	server := start(t, c.Guest(2), "up", "sh", "-c", "echo up; exec rping -s -V -C "+strconv.Itoa(rounds))
	// rdma_listen has no socket to look at, so the client tries again.
	script := "for i in 1 2 3 4 5 6 7 8 9; do rping -c -a g2 -V -C " + strconv.Itoa(rounds) + " && exit 0; sleep 0.3; done; exit 1"
	if out, err := c.Guest(1).Output(within(t), "sh", "-c", script); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_ = server.Wait(within(t)) // older ones end with an error after the client's goodbye
}

// reachable checks whether one guest's pings are answered by another. It tries
// until that is as wanted: an address may have to be resolved again first.
func reachable(t *testing.T, c *lab.Cluster, from, to int, want bool) {
	t.Helper()
	script := "for i in $(seq 40); do ping -c 1 -W 1 g" + strconv.Itoa(to) + " >/dev/null"
	if want {
		script += " && exit 0; sleep 0.2; done; exit 1"
	} else {
		script += " || exit 0; sleep 0.2; done; exit 1"
	}
	if code, err := c.Guest(from).Run(within(t), nil, nil, "sh", "-c", script); code != 0 || err != nil {
		t.Errorf("guest %d is to be reachable from guest %d: %t, and is not so (code %d, %v)", to, from, want, code, err)
	}
}

// received is how many pings a guest's kernel has received.
func received(t *testing.T, c *lab.Cluster, guest int) int {
	t.Helper()
	out := output(t, c.Guest(guest), "awk", "/^Icmp:/ && $2+0==$2 {print $10}", "/proc/net/snmp")
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestInsideAgents runs in guest 1 and starts, signals and kills programs in
// guests 2 and 3.
func TestInsideAgents(t *testing.T) {
	inside(t)
	for _, name := range []string{"g2", "g3"} {
		c, err := agent.Dial(within(t), name)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var out bytes.Buffer
		if code, err := c.Run(within(t), agent.Cmd{Args: []string{"sh", "-c", "hostname; exit 5"}}, &out, nil); code != 5 || err != nil || out.String() != name+"\n" {
			t.Errorf("%s: code %d, %v, %q", name, code, err, &out)
		}
		p, err := c.Start(within(t), agent.Cmd{Args: []string{"sh", "-c", "trap 'exit 6' TERM; echo ready; while :; do sleep 0.05; done"}})
		if err != nil {
			t.Fatal(err)
		}
		readUntil(t, p, "ready")
		status := filepath.Join("/proc", strconv.Itoa(p.Pid()), "stat")
		for _, step := range []struct {
			sig  syscall.Signal
			want string
		}{{syscall.SIGSTOP, "until grep -q ' T ' " + status + "; do sleep 0.05; done"}, {syscall.SIGCONT, "while grep -q ' T ' " + status + "; do sleep 0.05; done"}} {
			if err := p.Signal(step.sig); err != nil {
				t.Fatal(err)
			}
			if code, err := c.Run(within(t), agent.Cmd{Args: []string{"sh", "-c", step.want}}, nil, nil); code != 0 || err != nil {
				t.Errorf("%v: code %d, %v", step.sig, code, err)
			}
		}
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		var exit *agent.ExitError
		if err := p.Wait(within(t)); !errors.As(err, &exit) || exit.Code != 6 {
			t.Errorf("SIGTERM: %v", err)
		}
		ctx, cancel := context.WithCancel(within(t))
		if p, err = c.Start(ctx, agent.Cmd{Args: []string{"sleep", "1000"}}); err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(within(t)); !errors.As(err, &exit) || exit.Signal != syscall.SIGKILL {
			t.Errorf("SIGKILL: %v", err)
		}
		cancel()
	}
}
