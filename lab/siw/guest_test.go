package siw_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/lab/siw"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// inGuest reports whether this process runs in a guest of the lab with a siw
// device: then nothing is skipped, and what is missing is a failure.
func inGuest() bool { return os.Getenv("LAB_RDMA") == "siw" }

// variant is the driver that is loaded.
func variant() string { return cmp.Or(os.Getenv(siw.VariantEnv), siw.Variant{}.String()) }

// patience bounds each wait. A healthy end never comes near it.
const patience = 60 * time.Second

// A port is the RDMA device of the guest.
type port struct {
	device string // "siw0"
	addr   string // its IPv4 address
}

// siwPort finds the device.
func siwPort(t *testing.T) port {
	t.Helper()
	if !inGuest() {
		t.Skip("needs a kernel with siw: make lab-siw runs it in a guest")
	}
	out, err := exec.Command("rdma", "-j", "link").Output()
	if err != nil {
		t.Fatalf("rdma link: %v", err)
	}
	var links []struct{ Ifname, State, Netdev string }
	if err := json.Unmarshal(out, &links); err != nil {
		t.Fatalf("rdma link: %v: %s", err, out)
	}
	for _, l := range links {
		if !strings.HasPrefix(l.Ifname, "siw") || l.State != "ACTIVE" {
			continue
		}
		dev, err := net.InterfaceByName(l.Netdev)
		if err != nil {
			t.Fatal(err)
		}
		addrs, err := dev.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil {
				return port{device: l.Ifname, addr: ip.IP.String()}
			}
		}
	}
	t.Fatalf("no siw device is ACTIVE: %s", out)
	return port{}
}

// nextPort gives each listener of a C program a TCP port of its own: they
// cannot ask for any free one.
var nextPort atomic.Int32

func (p port) fresh() string {
	return fmt.Sprint(7200 + nextPort.Add(1))
}

// softDevice opens our own iWARP. A C program may be slow to answer: two
// processors are emulated, and shared.
func softDevice(t *testing.T, o iwarp.Options) rdma.Device {
	t.Helper()
	o.SetupTimeout = patience / 2
	dev, err := iwarp.New(o).Open(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
	return dev
}

// A program is a C program that runs beside the test.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan error
}

// run starts a program; it is killed at the end of ctx.
func run(ctx context.Context, t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t, done: make(chan error, 1)}
	p.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// over waits for the end of a program whose exit code says nothing.
func (p *program) over() {
	p.t.Helper()
	if err := <-p.done; err != nil {
		p.t.Logf("%s: %v\n%s", strings.Join(p.cmd.Args, " "), err, p.out.Bytes())
	}
}

// ended waits for exit code 0.
func (p *program) ended() {
	p.t.Helper()
	if err := <-p.done; err != nil {
		p.t.Errorf("%s: %v\n%s", strings.Join(p.cmd.Args, " "), err, p.out.Bytes())
	}
}

// whenListening calls dial again and again until there is a listener: a C
// program does not say when it listens.
func whenListening(ctx context.Context, dial func() error) error {
	for {
		err := dial()
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
