//go:build linux && cgo

package ibv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// ownDevice makes a Soft-RoCE device of its own on a dummy interface, which a
// test may pull the plug of. Only in the lab: it changes the machine.
func ownDevice(t *testing.T, dev, netdev, addr string) {
	t.Helper()
	if os.Getenv("LAB_RDMA") != "rxe" {
		if inLab() {
			t.Skip("this lab has no rdma_rxe")
		}
		t.Skip("only in the lab: it makes network interfaces")
	}
	tool(t, "/sbin/ip", "link", "add", "name", netdev, "type", "dummy")
	t.Cleanup(func() { tool(t, "/sbin/ip", "link", "del", netdev) })
	tool(t, "/sbin/ip", "addr", "add", addr+"/24", "dev", netdev)
	tool(t, "/sbin/ip", "link", "set", netdev, "up")
	tool(t, "rdma", "link", "add", dev, "type", "rxe", "netdev", netdev)
}

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// TestPortEvents: the cable, and an address more.
func TestPortEvents(t *testing.T) {
	ownDevice(t, "rxeP", "plug0", "10.78.1.1")
	t.Cleanup(func() { tool(t, "rdma", "link", "del", "rxeP") })
	c := must(Open("rxeP"))(t)
	closing(t, c)
	state := func(want PortState) {
		t.Helper()
		if attr := must(c.QueryPort(1))(t); attr.State != want {
			t.Errorf("port is %v, want %v", attr.State, want)
		}
	}
	state(PortActive)
	tool(t, "/sbin/ip", "link", "set", "plug0", "down")
	if ev := next(t, c, AsyncPortErr); ev.Port != 1 {
		t.Errorf("%+v", ev)
	}
	state(PortDown)
	tool(t, "/sbin/ip", "link", "set", "plug0", "up")
	if ev := next(t, c, AsyncPortActive); ev.Port != 1 {
		t.Errorf("%+v", ev)
	}
	state(PortActive)
	tool(t, "/sbin/ip", "addr", "add", "10.78.1.2/24", "dev", "plug0")
	for want := gid("::ffff:10.78.1.2"); ; {
		if ev := next(t, c, AsyncGIDChange); ev.Port != 1 {
			t.Errorf("%+v", ev)
		}
		for _, e := range must(c.GIDTable(1))(t) {
			if e.GID == want {
				return
			}
		}
	}
}

// pull removes a device in the background.
func pull(t *testing.T, dev string) (removed <-chan struct{}) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tool(t, "rdma", "link", "del", dev)
	}()
	return done
}

func gone(t *testing.T, removed <-chan struct{}, dev string) {
	t.Helper()
	select {
	case <-removed:
	case <-time.After(patience):
		t.Fatal("the kernel does not let the device go")
	}
	if _, err := Open(dev); !errors.Is(err, ErrNoSuchDevice) {
		t.Errorf("opened what was removed: %v", err)
	}
}

// TestDeviceRemoval: a device goes while everything of it is in use. A driver
// that can take it away from under us sends DEVICE_FATAL then; rxe cannot, and
// waits until everything is closed, and closing works as before.
func TestDeviceRemoval(t *testing.T) {
	ownDevice(t, "rxeR", "plug1", "10.78.2.1")
	c := must(Open("rxeR"))(t)
	pd := must(c.AllocPD())(t)
	mem := pages(t, memSize)
	mr := must(pd.RegMR(uintptr(addrOf(mem)), memSize, AccessLocalWrite))(t)
	ch := must(c.CreateCompChannel())(t)
	cq := must(c.CreateCQ(16, ch))(t)
	srq := must(pd.CreateSRQ(16, 1, 0))(t)
	qp, _, err := pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, SRQ: srq, Cap: QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := ch.Get(context.Background()); !errors.Is(err, ErrClosed) {
			t.Errorf("CompChannel.Get ended with %v", err)
		}
	})
	removed := pull(t, "rxeR")
	time.Sleep(100 * time.Millisecond) // to have the removal begin, mostly
	for _, o := range []interface{ Close() error }{qp, srq, cq, ch, mr, pd, c} {
		if err := o.Close(); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
	wg.Wait()
	gone(t, removed, "rxeR")
}

// TestRemovalEvent: librdmacm tells which id's address the device had. It keeps
// every device that it bound to open until the process ends, so this is one of
// its own.
func TestRemovalEvent(t *testing.T) {
	if os.Getenv("RDMAKV_TEST_CHILD") != "" {
		removalChild(t)
		return
	}
	ownDevice(t, "rxeQ", "plug2", "10.78.3.1")
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestRemovalEvent$")
	child.Env = append(os.Environ(), "RDMAKV_TEST_CHILD=1")
	out := must(child.StdoutPipe())(t)
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "bound" {
		t.Errorf("the child said %q", lines.Text())
	}
	removed := pull(t, "rxeQ")
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	gone(t, removed, "rxeQ")
}

func removalChild(t *testing.T) {
	events := must(NewEventChannel())(t)
	id := must(events.NewID())(t)
	if err := id.Bind(netip.MustParseAddrPort("10.78.3.1:0")); err != nil || id.Device() != "rxeQ" {
		t.Fatal(err, id.Device())
	}
	if err := id.Listen(1); err != nil {
		t.Fatal(err)
	}
	fmt.Println("bound")
	if ev := on(t, events, CMDeviceRemoval); ev.ID != id {
		t.Errorf("%+v", ev)
	}
	for _, o := range []interface{ Close() error }{id, events} {
		if err := o.Close(); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
}
