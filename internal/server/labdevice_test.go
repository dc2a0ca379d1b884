package server

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// onlyDevice opens one device, whichever is asked for.
type onlyDevice struct {
	rdma.Fabric
	name string
}

func (o onlyDevice) Open(ctx context.Context, _ string) (rdma.Device, error) {
	return o.Fabric.Open(ctx, o.name)
}

// TestLabDevice is a node on a Soft-RoCE device of its own that loses its address
// and its port, gets them back, and is removed. Then everything of it is closed; but
// that the removal ends, and the device can come back, takes the end of this
// process, because librdmacm keeps each device open that it has used, and rxe waits.
func TestLabDevice(t *testing.T) {
	if os.Getenv("LAB_RDMA") != "rxe" {
		t.Skip("only in the lab, on Soft-RoCE: it makes and removes a device")
	}
	const dev, netdev, addr = "rxeS", "plugS", "10.79.1.1"
	tool := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
		}
	}
	ip := func(args string) {
		t.Helper()
		tool("/sbin/ip", strings.Fields(args)...)
	}
	ip("link add name " + netdev + " type dummy")
	ip("addr add " + addr + "/24 dev " + netdev)
	ip("link set " + netdev + " up")
	tool("rdma", "link", "add", dev, "type", "rxe", "netdev", netdev)
	fabric := verbs.New(verbs.Options{})
	srv := startServer(t, func(c *Config) {
		c.Fabric, c.MemoryKind, c.AdminListen = nil, memory.Mmap, "127.0.0.1:0"
		c.Listeners = []Listener{{Fabric: fabric, Device: dev, Addr: addr + ":0"}}
		c.MemoryLimit, c.RegionSize, c.IndexRegionSize = 64<<20, 8<<20, 2<<20
	})
	try := func() error {
		p, err := tryDial(t, srv, peerOptions{fabric: onlyDevice{fabric, dev}, kind: memory.Mmap, receives: 16, via: srv.Addrs()[0].String()})
		if err == nil {
			err = p.put("key", "value")
			p.close()
		}
		return err
	}
	settled := func(what string, ok bool) {
		t.Helper()
		if !within(2*time.Minute, cmIs(srv, ok)) { // dials may have to run out
			t.Fatalf("still not so: %s", what)
		}
		t.Logf("%s: %v", what, srv.ailing())
	}
	settled("the node has dialled itself", true)
	if err := try(); err != nil {
		t.Fatal(err)
	}
	ip("addr del " + addr + "/24 dev " + netdev)
	settled("the address is gone", false)
	ip("addr add " + addr + "/24 dev " + netdev)
	settled("the address is back", true)
	if err := try(); err != nil {
		t.Errorf("after the address came back: %v", err)
	}
	ip("link set " + netdev + " down")
	ip("link set " + netdev + " up")
	settled("the port has come back", true)
	if err := try(); err != nil {
		t.Errorf("after the port came back: %v", err)
	}
	d := srv.deviceList()[0]
	removal := exec.Command("rdma", "link", "delete", dev) // ends after this process
	if err := removal.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the device is away", isAway(srv, 0))
	eventually(t, "what was made on it is closed", func() bool { // it is tried again after that
		return d.away.Load().tries > 0
	})
	if !d.closed {
		t.Error("it is not closed")
	}
	code, text := httpGet(t, srv, "/readyz")
	t.Logf("/readyz: %d %s", code, text)
	if code != 503 || !strings.Contains(text, "device verbs/"+dev+": away since") {
		t.Error("the node does not say that its device is away")
	}
}
