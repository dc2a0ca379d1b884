package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/lab"
	"github.com/rdmakv/rdmakv/lab/agent"
	"github.com/rdmakv/rdmakv/test/launch"
	"github.com/rdmakv/rdmakv/test/node"
)

// A guest is a place: the one that was booted last under its number.
type guest struct {
	cl *lab.Cluster
	n  int // from 1
}

func (p guest) Name() string      { return fmt.Sprintf("g%d", p.n) }
func (p guest) IP() string        { return fmt.Sprintf("10.77.0.%d", p.n) }
func (p guest) g() *lab.Guest     { return p.cl.Guest(p.n) }
func (p guest) On() node.Launcher { return launch.On(p.g().Agent()) }

// cables are the links of guests, by name.
type cables struct{ cl *lab.Cluster }

// port is the port of a guest at the switch.
func (c cables) port(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "g"))
	return n // 0 makes the switch panic
}

func (c cables) Cut(a, b string, ports ...uint16) error {
	c.cl.Switch.Cut(c.port(a), c.port(b), ports...)
	return nil
}

func (c cables) CutOneWay(from, to string, ports ...uint16) error {
	c.cl.Switch.CutOneWay(c.port(from), c.port(to), ports...)
	return nil
}

func (c cables) Delay(a, b string, d time.Duration) error {
	c.cl.Switch.Delay(c.port(a), c.port(b), d)
	return nil
}

func (c cables) Lose(a, b string, probability float64) error {
	c.cl.Switch.Lose(c.port(a), c.port(b), probability)
	return nil
}

func (c cables) Heal() error {
	c.cl.Switch.Heal()
	return nil
}

// TestLab runs a cluster on three guests with Soft-RoCE: real data, every key read
// one-sidedly, and what goes wrong, the clocks included.
func TestLab(t *testing.T) {
	l := newLab(t, "lab", nil)
	l.must(t, l.east(), "--server", l.Nodes[0].Addr(), "cluster", "init", "n1", "n2", "n3")
	l.awaitAlive(t, l.east())
	l.everyKey(t)
	l.start("east")
	l.start("west")
	l.allWell(t, "before anything goes wrong")

	l.kill9()
	l.pause() // the adapter goes on answering
	l.linkCut()
	l.oneWayCuts()
	l.awaitAlive(t, l.east())
	l.gossipCut(func(*testing.T) {})
	l.dataCut(DataPort, RoCEPort)
	l.clockStep()
	l.rollingRestart()
	l.end()
}

// A labDrill is a drill in guests. The stations are where the victim is not.
type labDrill struct {
	drill
	cl *lab.Cluster
}

// newLab boots three guests and starts a node on each. change may change what the guests
// and the nodes are.
func newLab(t *testing.T, name string, change func(*lab.Config, *Options)) *labDrill {
	t.Helper()
	if os.Getenv("RDMAKV_CLUSTER") == "" {
		t.Skip("boots three guests: make lab-cluster runs it (RDMAKV_CLUSTER=1)")
	}
	t.Logf("seed %d", *seedFlag)
	dir := t.TempDir()
	for _, d := range []string{"bin", "data"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o777))
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "bin")+"/", "../../cmd/kvserver", "../../cmd/kvclient", "./load").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	logs := &lines{}
	c := lab.Config{Dir: dir, Memory: 1280, Progress: func(s string) { t.Log(s) }}
	o := Options{Bin: "/tmp/bin", Dir: filepath.Join(dir, "data"), Seen: "/mnt/data", Fabric: "verbs", Lease: 4 * time.Second, Log: logs, Wait: patience,
		// Emulated processors are slow, and each pair of guests has one of the host's.
		Args: []string{"--gossip-profile", "wan"},
	}
	if change != nil {
		change(&c, &o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cl, err := lab.NewCluster(ctx, 3, c)
	must(t, err)
	t.Cleanup(func() {
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range cl.Len() {
		o.Places = append(o.Places, guest{cl, i + 1})
	}
	r, err := NewRig(o)
	must(t, err)
	t.Cleanup(func() {
		_ = r.Close()
		if t.Failed() {
			t.Logf("what the nodes said:\n%s", logs)
		}
	})
	l := &labDrill{drill: drill{
		Rig: r, t: t, name: name, net: cables{cl}, stations: map[string]Station{},
		at: map[string]string{"east": "g1", "west": "g3"}, places: map[string]Place{"east": o.Places[0], "two": o.Places[1], "west": o.Places[2]},
	}, cl: cl}
	for i := range cl.Len() {
		l.takePrograms(t, i+1)
	}
	must(t, r.Start(within(t)))
	return l
}

// takePrograms copies the programs into the memory of a guest. The shared directory caches
// nothing: each page of a program would be fetched from the host when it is first executed, in
// the middle of a call with a deadline.
func (l *labDrill) takePrograms(t *testing.T, guest int) {
	t.Helper()
	if out, err := l.cl.Guest(guest).Output(within(t), "cp", "-r", "/mnt/bin", "/tmp/bin"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// load starts cmd load in the guest of a station.
func (l *labDrill) load(host string, args ...string) (*agent.Process, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	cmd := append([]string{"/tmp/bin/load", "-servers", strings.Join(l.Addrs(), ","), "-secret-file", l.seen(l.SecretFile()), "-host", host,
		"-seed", fmt.Sprint(*seedFlag), "-out", "/mnt/data/histories"}, args...)
	return l.places[host].(guest).g().Agent().Start(ctx, agent.Cmd{Args: cmd, Input: true})
}

// start starts a station, which serves until its standard input ends.
func (l *labDrill) start(host string, args ...string) {
	l.t.Helper()
	p, err := l.load(host, args...)
	must(l.t, err)
	errs := &lines{}
	go func() { _, _ = io.Copy(errs, p.Stderr()) }()
	l.t.Cleanup(func() {
		_ = p.Kill()
		if l.t.Failed() {
			l.t.Logf("the station %s said: %s", host, errs)
		}
	})
	// One that does not answer at all ends with its guest; the test does not wait for
	// ever.
	timer := time.AfterFunc(20*time.Minute, func() { _ = p.Kill() })
	l.t.Cleanup(func() { timer.Stop() })
	l.stations[host] = Remote(p.Stdin(), p.Stdout())
}

// everyKey imports real data from two guests, and reads every key from both.
func (l *labDrill) everyKey(t *testing.T) {
	t.Helper()
	records := realData(t, 6000)
	file := filepath.Join(l.opt.Dir, "records")
	for i, host := range []string{"east", "west"} {
		half := len(records) / 2
		writeRecords(t, file, records[i*half:(i+1)*half])
		start := time.Now()
		l.imported(t, l.places[host], l.Nodes[i].Addr(), l.seen(file))
		t.Logf("%s: %d records imported in %v", host, half, time.Since(start).Round(time.Millisecond))
	}
	records = records[:len(records)/2*2]
	writeRecords(t, file, records)
	for _, host := range []string{"east", "west"} {
		start, before := time.Now(), l.cpu(t)
		p, err := l.load(host, "-read", l.seen(file))
		must(t, err)
		var out, errOut bytes.Buffer
		done := make(chan struct{})
		go func() {
			_, _ = io.Copy(&errOut, p.Stderr())
			close(done)
		}()
		_, _ = io.Copy(&out, p.Stdout())
		<-done
		if err := p.Wait(within(t)); err != nil {
			t.Fatalf("%s: %v: %s", host, err, &errOut)
		}
		t.Logf("%s:\n%s", host, &out)
		for i, s := range l.Nodes {
			t.Logf("the processor time of %s for that, and everything else it did in the %v: %v", s.ID, time.Since(start).Round(time.Second), l.cpu(t)[i]-before[i])
		}
	}
}

// imported stores a file of records. On a host with much else to do an emulated
// processor may be away for longer than a client waits for a sign of life; what was
// stored is stored, and to store it again is harmless.
func (l *labDrill) imported(t *testing.T, at Place, server, file string) {
	t.Helper()
	for tries := 1; ; tries++ {
		_, code, errOut := l.kvclient(t, at, "--server", server, "import", file)
		if code == 0 {
			return
		}
		if tries == 5 {
			t.Fatalf("import: exit code %d\n%s", code, errOut)
		}
	}
}

// cpu is the processor time of each node so far.
func (l *labDrill) cpu(t *testing.T) (all []time.Duration) {
	t.Helper()
	for _, s := range l.Nodes {
		c, err := s.Process().CPU()
		must(t, err)
		all = append(all, c)
	}
	return all
}

// clockStep makes the wall clock of the victim jump by a day, and back.
func (l *labDrill) clockStep() {
	const keys = 12 // of which each node has some: placement has no seed
	step := func(t *testing.T, seconds string) {
		t.Helper()
		out, err := l.places["two"].(guest).g().Output(within(t), "sh", "-c", "date -s @$(($(date +%s) "+seconds+"))")
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	get := func(t *testing.T, prefix string) (there, gone int) {
		t.Helper()
		for i := range keys {
			_, code, errOut := l.kvclient(t, l.east(), "--server", l.Nodes[0].Addr(), "get", fmt.Sprintf("%s %d", prefix, i))
			switch code {
			case 0:
				there++
			case 3:
				gone++
			default:
				t.Fatalf("get: exit code %d: %s", code, errOut)
			}
		}
		return there, gone
	}
	put := func(t *testing.T, prefix, ttl string) {
		t.Helper()
		for i := range keys {
			l.must(t, l.east(), "--server", l.Nodes[0].Addr(), "put", fmt.Sprintf("%s %d", prefix, i), "value", "--ttl", ttl)
		}
	}
	l.part("clock step", l.both("n1", "n2", "n3"), func(t *testing.T) {
		put(t, "hours", "10h")
		put(t, "ever", "never")
		if there, gone := get(t, "hours"); gone != 0 || there != keys {
			t.Fatalf("before: %d there, %d gone", there, gone)
		}
		step(t, "+ 86400")
		l.allWell(t, "a day ahead")
		// A server's time follows the monotonic clock while it runs: no deadline comes
		// early.
		if there, gone := get(t, "hours"); gone != 0 || there != keys {
			t.Errorf("a day ahead: of the keys for ten hours %d are there and %d are gone", there, gone)
		}
		step(t, "- 86400")
		l.allWell(t, "back again")
		if there, gone := get(t, "hours"); gone != 0 || there != keys {
			t.Errorf("back again: of the keys for ten hours %d are there and %d are gone", there, gone)
		}
		if there, gone := get(t, "ever"); gone != 0 || there != keys {
			t.Errorf("keys without a deadline: %d there, %d gone", there, gone)
		}
	})
}
