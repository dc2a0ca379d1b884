package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/agent"
)

// TestGuest boots one guest and looks at what it promises.
func TestGuest(t *testing.T) {
	g := boot(t, lab.Config{Huge: 16, Ports: 2})
	t.Run("exit codes", func(t *testing.T) { exitCodes(t, g) })
	t.Run("devices", func(t *testing.T) {
		links := output(t, g, "rdma", "link", "show")
		for _, want := range []string{`link rxe0/1 state ACTIVE .* netdev eth0`, `link rxe1/1 state ACTIVE .* netdev eth1`} {
			if !regexp.MustCompile(want).MatchString(links) {
				t.Errorf("no %q in %q", want, links)
			}
		}
		info := output(t, g, "ibv_devinfo", "-v", "-d", "rxe0")
		for _, want := range []string{"active_mtu:\t\t4096", "::ffff:10.77.0.1, RoCE v2", "fd00:77::1, RoCE v2"} {
			if !strings.Contains(info, want) {
				t.Errorf("no %q in %s", want, info)
			}
		}
	})
	t.Run("clock", func(t *testing.T) { clock(t, g) })
	t.Run("a test binary", func(t *testing.T) { inGuest(t, g, "TestInside") })
	t.Run("tools", func(t *testing.T) {
		start(t, g, "up", "sh", "-c", "echo up; exec ib_read_lat -n 100")
		if out := output(t, g, "sh", "-c", listening+"ib_read_lat -n 100 10.77.0.1"); !strings.Contains(out, "t_typical") {
			t.Errorf("ib_read_lat says %s", out)
		}
		if out := output(t, g, "sh", "-c", "ip -V; tc -V; echo tested | sed s/tested/yes/"); !strings.Contains(out, "iproute2") || !strings.Contains(out, "yes") {
			t.Errorf("%q: busybox's ip instead of the real one?", out)
		}
	})
	t.Run("shared directory", func(t *testing.T) {
		output(t, g, "sh", "-c", "echo hello from the guest >/mnt/file")
		if data, err := os.ReadFile(filepath.Join(g.Dir, "file")); err != nil || string(data) != "hello from the guest\n" {
			t.Errorf("%q, %v", data, err)
		}
	})
	t.Run("cable", func(t *testing.T) {
		link := func(up bool, state string) {
			if err := g.SetLink(up); err != nil {
				t.Fatal(err)
			}
			output(t, g, "sh", "-c", "until rdma link show rxe0/1 | grep -q 'state "+state+"'; do sleep 0.05; done")
		}
		link(false, "DOWN")
		link(true, "ACTIVE")
	})
	t.Run("pause", func(t *testing.T) { pause(t, g) })
	t.Run("power", func(t *testing.T) {
		p := start(t, g, "tick", "sh", "-c", "echo tick; sleep 1000")
		if err := g.Kill(); err != nil {
			t.Fatal(err)
		}
		<-g.Done()
		if err := p.Wait(within(t)); err == nil {
			t.Error("a program ended well in a guest without power")
		}
		if _, err := g.Run(within(t), nil, nil, "true"); err == nil {
			t.Error("a program runs in a guest without power")
		}
	})
}

// listening waits for the server of perftest in the same guest.
const listening = "until netstat -ltn | grep -q :18515; do sleep 0.05; done; "

func exitCodes(t *testing.T, g *lab.Guest) {
	for script, want := range map[string]int{"true": 0, "exit 3": 3, "kill -9 $$": 128 + 9, "exit 255": 255} {
		if code, err := g.Run(within(t), nil, nil, "sh", "-c", script); code != want || err != nil {
			t.Errorf("%s: code %d, %v, and not %d", script, code, err, want)
		}
	}
	var out, errs bytes.Buffer
	if code, err := g.Run(within(t), &out, &errs, "sh", "-c", "echo a; echo b >&2; exit 1"); code != 1 || err != nil || out.String() != "a\n" || errs.String() != "b\n" {
		t.Errorf("code %d, %v, output %q and %q", code, err, &out, &errs)
	}
	if _, err := g.Run(within(t), nil, nil, "/no/such/program"); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("a missing program: %v", err)
	}
	ctx, cancel := context.WithCancel(within(t))
	p := start(t, g, "up", "sh", "-c", "echo up; exec sleep 1000")
	cancel()
	if _, err := p.Copy(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("time is up: %v", err)
	}
	if err := p.Wait(within(t)); err == nil {
		t.Error("it was not killed")
	}
}

// clock: a second is as long there as here, to two percent. Each look at the
// guest's clock happened between two looks at ours.
func clock(t *testing.T, g *lab.Guest) {
	look := func() (before time.Time, seconds float64, after time.Time) {
		before = time.Now()
		first, _, _ := strings.Cut(output(t, g, "cat", "/proc/uptime"), " ")
		after = time.Now()
		seconds, err := strconv.ParseFloat(first, 64)
		if err != nil {
			t.Fatal(err)
		}
		return before, seconds, after
	}
	before1, one, after1 := look()
	time.Sleep(3 * time.Second)
	before2, two, after2 := look()
	const resolution = 0.02 // of /proc/uptime, twice
	least, most := before2.Sub(after1).Seconds()*0.98-resolution, after2.Sub(before1).Seconds()*1.02+resolution
	if passed := two - one; passed < least || passed > most {
		t.Errorf("%.2f s passed in the guest, and between %.2f and %.2f s here", passed, least, most)
	}
}

// pause: a paused guest answers nothing, and later goes on where it was.
func pause(t *testing.T, g *lab.Guest) {
	cat, err := g.Agent().Start(within(t), agent.Cmd{Args: []string{"cat"}, Input: true})
	if err != nil {
		t.Fatal(err)
	}
	say := func(word string) {
		if _, err := cat.Stdin().Write([]byte(word + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	say("one")
	readUntil(t, cat, "one")
	if err := g.Pause(); err != nil {
		t.Fatal(err)
	}
	say("two")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		readUntil(t, cat, "two")
	}()
	select {
	case <-answered:
		t.Error("a paused guest answers")
	case <-time.After(500 * time.Millisecond):
	}
	if err := g.Continue(); err != nil {
		t.Fatal(err)
	}
	<-answered
	cat.Stdin().Close()
	if err := cat.Wait(within(t)); err != nil {
		t.Error(err)
	}
}

// TestRefused: a guest without the RDMA device that was asked for does not boot,
// nor one with a wrong clock, and it says why.
func TestRefused(t *testing.T) {
	t.Parallel()
	needLab(t)
	for _, c := range []struct {
		name   string
		config lab.Config
		want   string
	}{
		{"no module", lab.Config{Kernel: []string{"module_blacklist=rdma_rxe"}}, "can't load module rdma_rxe"},
		{"no device", lab.Config{RDMA: lab.SIW}, "siw device: is its module loaded?"},                       // and no module of it
		{"wrong clock", lab.Config{Kernel: []string{"tsc_early_khz=200000"}}, "the guest's clock is wrong"}, // five times too fast, or more
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.config.Timeout = patience
			c.config.CPUs = 1 // of three at a time
			g, err := lab.Boot(t.Context(), c.config)
			if err == nil {
				g.Close()
				t.Fatalf("it boots, and should say %q", c.want)
			}
			t.Log(strings.SplitN(err.Error(), "\n", 2)[0])
			if !errors.Is(err, lab.ErrBoot) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "console") {
				t.Errorf("no %q in %v", c.want, err)
			}
		})
	}
}

// TestBootTimeout: a guest that takes too long is given up, with what it said.
func TestBootTimeout(t *testing.T) {
	needLab(t)
	g, err := lab.Boot(t.Context(), lab.Config{Timeout: 2 * time.Second})
	if err == nil {
		g.Close()
		t.Skip("this machine boots faster than that")
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// TestSilentGuest: a machine that prints nothing while it boots is started anew,
// until the time is over, and what the last one printed is told then.
func TestSilentGuest(t *testing.T) {
	t.Parallel()
	needLab(t)
	p := &progress{t: t}
	c := lab.Config{Timeout: 30 * time.Second, Silence: 5 * time.Second, CPUs: 1, Progress: p.add, Kernel: []string{"rdinit=/bin/busybox", "--", "sleep", "1000"}}
	g, err := lab.Boot(t.Context(), c)
	if err == nil {
		g.Close()
		t.Fatal("it boots, and its first process sleeps")
	}
	for _, want := range []string{"deadline exceeded", `its processors stand at:\nCPU#0\nRIP=`, `\n\[ +[0-9]+\.[0-9]{6}\] [A-Za-z]`} {
		if !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if all := strings.Join(p.lines, "\n"); strings.Count(all, "nothing was printed for 5s; it is started anew") < 2 || strings.Count(all, "booting Linux") < 3 {
		t.Errorf("it was not started anew: %s", all)
	}
}

// TestPowerCut: what was synced to a disk is there after a power cut, and what
// was not is gone.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	needLab(t)
	disk := filepath.Join(t.TempDir(), "disk,with a comma")
	if err := lab.NewDisk(disk, 64); err != nil {
		t.Fatal(err)
	}
	g := boot(t, lab.Config{Disk: disk})
	output(t, g, "sh", "-c", "echo synced >/data/a && sync /data/a && sync && echo lost >/data/b && cat /data/b")
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	g = boot(t, lab.Config{Disk: disk})
	if a := output(t, g, "cat", "/data/a"); a != "synced\n" {
		t.Errorf("the synced file is %q", a)
	}
	if b := output(t, g, "sh", "-c", "cat /data/b 2>/dev/null || true"); b != "" {
		t.Errorf("the other file is %q: was the power really cut?", b)
	}
}
