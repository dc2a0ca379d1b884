package main

import (
	"bytes"
	"errors"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/examples/internal/runs"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

func TestMain(m *testing.M) { runs.Main(m, main) }

// sawInOrder demands each of want in the output, in this order.
func sawInOrder(t *testing.T, who, out string, want ...string) {
	t.Helper()
	rest := out
	for _, w := range want {
		i := strings.Index(rest, w)
		if i < 0 {
			t.Fatalf("%s: no %q where it belongs in\n%s", who, w, out)
		}
		rest = rest[i+len(w):]
	}
}

func listen(t *testing.T, d runs.Device, args ...string) (server *runs.Proc, addr string) {
	t.Helper()
	server = runs.Start(t, append([]string{"-listen", net.JoinHostPort(d.Addr, "0")}, args...)...)
	return server, regexp.MustCompile(`listening at (\S+)`).FindStringSubmatch(server.Line("listening at"))[1]
}

func TestDeviceConnect(t *testing.T) {
	d := runs.NeedDevice(t)
	server, addr := listen(t, d, "-count", "3")
	for range 3 {
		out := runs.Start(t, "-connect", addr).Wait(0)
		want := []string{"ADDR_RESOLVED", "ROUTE_RESOLVED", "CONNECT_RESPONSE", `says "welcome"`, `received "pong"`, "DISCONNECTED"}
		if d.IWARP {
			want[2] = "ESTABLISHED"
		}
		sawInOrder(t, "client", out, want...)
	}
	out := server.Wait(0)
	once := []string{"CONNECT_REQUEST", `says "may I come in?"`, "ESTABLISHED", `received "ping"`, "DISCONNECTED"}
	sawInOrder(t, "server", out, append(append(once, once...), once...)...)
}

func TestDeviceReject(t *testing.T) {
	d := runs.NeedDevice(t)
	server, addr := listen(t, d, "-reject")
	out := runs.Start(t, "-connect", addr).Wait(1)
	sawInOrder(t, "client", out, "REJECTED", "not today")
	server.Wait(0)
}

// TestDeviceNobodyListens: the refusal of a host without a listener.
func TestDeviceNobodyListens(t *testing.T) {
	d := runs.NeedDevice(t)
	out := runs.Start(t, "-connect", net.JoinHostPort(d.Addr, "9")).Wait(1)
	if d.IWARP { // there the call itself fails
		sawInOrder(t, "client", out, "ROUTE_RESOLVED", "rdma_connect")
		return
	}
	sawInOrder(t, "client", out, "ROUTE_RESOLVED", "REJECTED")
}

// TestWithoutDevice: where there is no RDMA, the error says so and what to do.
func TestWithoutDevice(t *testing.T) {
	err := run(t.Context(), []string{"-connect", "127.0.0.1:9", "-timeout", "5s"}, &bytes.Buffer{})
	if err == nil {
		t.Fatal("connected to port 9 of this host")
	}
	if _, derr := ibv.Devices(); errors.Is(derr, ibv.ErrUnavailable) && !errors.Is(err, ibv.ErrUnavailable) {
		t.Errorf("%v, while the list of devices says %v", err, derr)
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-listen", "1.2.3.4:1", "-connect", "1.2.3.4:1"}, {"-listen", "1.2.3.4:1", "more"},
		{"-listen", "here:1"}, {"-listen", "1.2.3.4"}, {"-listen", "1.2.3.4:1", "-count", "-1"},
	} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

// TestMeaning: every event that ends an attempt is explained.
func TestMeaning(t *testing.T) {
	for _, e := range []ibv.CMEventType{ibv.CMAddrError, ibv.CMRouteError, ibv.CMUnreachable, ibv.CMConnectError, ibv.CMRejected, ibv.CMDisconnected, ibv.CMDeviceRemoval} {
		if m := meaning(ibv.CMEvent{Type: e}); m == "" || m == "out of place" {
			t.Errorf("%v: %q", e, m)
		}
	}
	ev := ibv.CMEvent{Type: ibv.CMRejected, Status: 28, Param: ibv.ConnParam{PrivateData: []byte("not today\x00\x00")}}
	if m := meaning(ev); !strings.Contains(m, `"not today"`) {
		t.Error(m)
	}
}
