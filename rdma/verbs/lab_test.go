package verbs_test

import (
	"net"
	"os"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/rdmatest"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// needDevice skips a test where there is no RDMA device. In the lab
// (RDMAKV_LAB=1) there must be one: its tests never skip.
func needDevice(t testing.TB) {
	t.Helper()
	err := verbs.New(verbs.Options{}).Unavailable()
	switch {
	case err == nil:
	case os.Getenv("RDMAKV_LAB") == "1":
		t.Fatalf("this is the lab, but: %v", err)
	default:
		t.Skipf("no RDMA here: %v", err)
	}
}

// listenAddr is the first address of an RDMA device, port 0. An address of the
// loopback belongs to no RoCE device.
func listenAddr(t testing.TB) string {
	t.Helper()
	needDevice(t)
	routes, err := verbs.New(verbs.Options{}).Local(t.Context(), ":0")
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(routes[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(host, "0")
}

// conformance is how the suite sees this fabric. Memory is mapped: devices pin
// pages, and Go's heap is not for that.
func conformance(t testing.TB, opts verbs.Options) rdmatest.Config {
	impatient := opts
	impatient.SetupTimeout = impatience
	return rdmatest.Config{
		New:          func(testing.TB) rdma.Fabric { return verbs.New(opts) },
		NewImpatient: func(testing.TB) rdma.Fabric { return verbs.New(impatient) },
		Listen:       listenAddr(t),
		Memory:       mem.Mmap,
		Hardware:     true,
	}
}
