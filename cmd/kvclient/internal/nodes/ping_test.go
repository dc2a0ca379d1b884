package nodes

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
)

func TestPingReport(t *testing.T) {
	var took []time.Duration
	for i := 200; i > 0; i-- {
		took = append(took, time.Duration(i)*time.Microsecond)
	}
	r := pingReport{Read: sumUp(took), Send: sumUp([]time.Duration{1500})}
	if g := r.Read.Times; g.Min != 1 || g.P50 != 100 || g.P99 != 198 || g.Max != 200 || r.Read.Count != 200 {
		t.Errorf("%+v", r.Read)
	}
	r.Session = admin.ServerInfo{
		Address: "kv1:7400", ID: "s1", Fabric: "verbs", Device: "rxe0", Port: 1,
		GID: "::ffff:10.77.0.1", GIDIndex: 2, GIDType: "RoCE v2", PeerGID: "::ffff:10.77.0.2", MTU: 4096, Why: "it has the route",
	}
	const hardware = `server    kv1:7400, name s1
fabric    verbs
device    rxe0, port 1
GID       ::ffff:10.77.0.1 (RoCE v2, index 2)
peer GID  ::ffff:10.77.0.2
MTU       4096
why       it has the route

µs                             min  p50    p99    max
READ of 64 B, one-sided (200)  1.0  100.0  198.0  200.0
SEND and reply (1)             1.5  1.5    1.5    1.5
`
	if got := r.String(); got != hardware {
		t.Errorf("got\n%s\nwant\n%s", got, hardware)
	}
	r.Session = admin.ServerInfo{
		Address: "kv1:7400", ID: "s1", Fabric: "iwarp", Software: true, Device: "iwarp0", Transport: "MPA rev 2",
		LeaseOff: true, Skipped: []admin.Skipped{{Fabric: "verbs", Reason: "install rdma-core"}},
	}
	const software = `server     kv1:7400, name s1
fabric     iwarp (in software)
device     iwarp0
transport  MPA rev 2
not verbs  install rdma-core
lease      off: reads are believed for as long as the device answers
`
	if got := r.String(); !strings.HasPrefix(got, software+"\n") {
		t.Errorf("got\n%s\nwant\n%s", got, software)
	}
}
