package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/examples/internal/runs"
)

// These tests need an RDMA device, and rping(1) of rdma-core: the lab has both.
// Against rping(1) there are 1,000 rounds with the data verified, each way.

// against are sizes of data in bytes and numbers of rounds.
var against = []struct {
	size   string
	rounds int
}{{"64", 1000}, {"4000", 100}}

func TestOnDevice(t *testing.T) {
	d := runs.NeedDevice(t)
	server := runs.Start(t, "-s", "-fabric", "verbs", "-a", d.Addr, "-p", "0", "-S", "4000")
	client := runs.Start(t, "-c", "-fabric", "verbs", "-a", d.Addr, "-p", portOf(t, server), "-C", "100", "-S", "4000", "-V")
	if out := client.Wait(0); !strings.Contains(out, "100 rounds of 4000 bytes, data verified") {
		t.Errorf("client: %s", out)
	}
	if out := server.Wait(0); !strings.Contains(out, "server: 100 rounds") {
		t.Errorf("server: %s", out)
	}
}

// fabrics are ours that can talk to rping(1) on the device. The software fabric
// speaks iWARP, and an iWARP device understands it.
func fabrics(d runs.Device) []string {
	if d.IWARP {
		return []string{"verbs", "iwarp"}
	}
	return []string{"verbs"}
}

// TestDeviceClientOfC: our client, rping(1) as the server. -V is the client's, so
// it is our comparison of what came back.
func TestDeviceClientOfC(t *testing.T) {
	d := runs.NeedDevice(t)
	rping := runs.NeedProgram(t, "rping")
	port := 7180
	for _, fabric := range fabrics(d) {
		for _, c := range against {
			t.Run(fabric+"/"+c.size, func(t *testing.T) {
				port++
				at, rounds := strconv.Itoa(port), strconv.Itoa(c.rounds)
				server := runs.Command(t, rping, "-s", "-a", d.Addr, "-p", at, "-S", c.size, "-v")
				out, code := dialUntilHeard(t, "-c", "-fabric", fabric, "-a", d.Addr, "-p", at, "-C", rounds, "-S", c.size, "-V")
				if code != 0 || !strings.Contains(out, rounds+" rounds of "+c.size+" bytes, data verified") {
					t.Errorf("client, exit code %d: %s", code, out)
				}
				server.Line("server DISCONNECT EVENT")
				<-server.Ended()
				if n := strings.Count(server.Output(), "server ping data: rdma-ping-"); n != c.rounds {
					t.Errorf("rping(1) served %d rounds", n)
				}
			})
		}
	}
}

// dialUntilHeard starts our client again until there is a listener: rping(1) does not
// say when it is ready.
func dialUntilHeard(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	for range 100 {
		client := runs.Start(t, args...)
		code = <-client.Ended()
		if out = client.Output(); code == 0 || strings.Contains(out, "connected to") {
			return out, code
		}
		time.Sleep(100 * time.Millisecond)
	}
	return out, code
}

// TestDeviceServerOfC: our server, rping(1) as the client, which verifies.
func TestDeviceServerOfC(t *testing.T) {
	d := runs.NeedDevice(t)
	rping := runs.NeedProgram(t, "rping")
	for _, fabric := range fabrics(d) {
		for _, c := range against {
			t.Run(fabric+"/"+c.size, func(t *testing.T) {
				rounds := strconv.Itoa(c.rounds)
				server := runs.Start(t, "-s", "-fabric", fabric, "-a", d.Addr, "-p", "0", "-S", c.size)
				client := runs.Command(t, rping, "-c", "-V", "-v", "-a", d.Addr, "-p", portOf(t, server), "-C", rounds, "-S", c.size)
				// rping(1) closes its event channel while its own thread waits there; if
				// that one notices before the program is gone, it ends it with -1, after
				// all rounds. Those are counted below, and only this end is let pass.
				code := <-client.Ended()
				out := client.Output()
				if code != 0 && !(code == 255 && strings.HasSuffix(strings.TrimSpace(out), "rdma_get_cm_event: Bad file descriptor")) {
					t.Errorf("rping(1): exit code %d", code)
				}
				if n := strings.Count(out, "ping data: rdma-ping-"); n != c.rounds || strings.Contains(out, "mismatch") {
					t.Errorf("rping(1) had %d rounds", n)
				}
				if out := server.Wait(0); !strings.Contains(out, "server: "+rounds+" rounds") {
					t.Errorf("server: %s", out)
				}
			})
		}
	}
}
