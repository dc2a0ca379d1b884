package ibv

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestStrings(t *testing.T) {
	for _, c := range []struct {
		v    fmt.Stringer
		want string
	}{
		{PortActive, "ACTIVE"}, {PortState(9), "port state 9"},
		{MTU4096, "4096"}, {MTU256, "256"}, {MTU(0), "MTU 0"}, {MTU(6), "MTU 6"},
		{LinkEthernet, "Ethernet"}, {LinkInfiniBand, "InfiniBand"},
		{TransportIB, "IB"}, {TransportIWARP, "iWARP"}, {TransportUnknown, "transport -1"},
		{GID(netip.MustParseAddr("::ffff:10.0.0.1").As16()), "::ffff:10.0.0.1"},
		{GIDRoCEv2, "RoCE v2"}, {GIDType(9), "GID type 9"},
		{QPSErr, "ERR"}, {QPSSQD, "SQD"},
		{AccessLocalWrite | AccessRemoteRead, "LOCAL_WRITE|REMOTE_READ"}, {Access(0), "0x0"}, {Access(1 << 20), "0x100000"},
		{QPMaskState | QPMaskDestQPN | QPMaskAV, "STATE|AV|DEST_QPN"},
		{SendSignaled | SendInline, "SIGNALED|INLINE"},
		{WRAtomicFetchAdd, "ATOMIC_FETCH_AND_ADD"}, {WRSendInv, "SEND_WITH_INV"},
		{StatusRemAccessErr, "REM_ACCESS_ERR"}, {StatusTMRndvIncomplete, "TM_RNDV_INCOMPLETE"}, {WCStatus(99), "WC status 99"},
		{WCRDMARead, "RDMA_READ"}, {WCRecv, "RECV"}, {WCRecvRDMAWithImm, "RECV_RDMA_WITH_IMM"},
		{AsyncSRQLimitReached, "SRQ_LIMIT_REACHED"}, {AsyncWQFatal, "WQ_FATAL"},
		{CMConnectRequest, "CONNECT_REQUEST"}, {CMTimewaitExit, "TIMEWAIT_EXIT"}, {CMEventType(77), "CM event 77"},
	} {
		if got := c.v.String(); got != c.want {
			t.Errorf("%T %#v is %q, want %q", c.v, c.v, got, c.want)
		}
	}
}
