package siw_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/lab/siw"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// The C program rping(1), with librdmacm on the kernel's siw, against our own
// RNIC in user space. Every iteration is a SEND, a READ and a WRITE each way,
// and the end that asked for it compares the bytes.

// A habit is one way in which our end may set up a connection, and what must
// come of it.
type habit struct {
	name string
	opts iwarp.Options
	want string // ConnInfo.Detail
	args []string
}

// A dose is how many iterations of which size.
type dose struct{ size, count int }

// doses are for the i-th habit: the first one, which is what programs do by
// default, gets the most.
func doses(i int) []dose {
	if i == 0 {
		return []dose{{64, 1000}, {4096, 200}, {pingMaxSize, 50}}
	}
	return []dose{{64, 50}, {pingMaxSize, 20}}
}

// TestRpingClient: our client, the C server on siw. As the initiator our end
// chooses revision and mode; siw follows.
func TestRpingClient(t *testing.T) {
	p := siwPort(t)
	for i, h := range []habit{
		{"rev 2", iwarp.Options{}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length write", nil},
		{"rev 2 without CRC", iwarp.Options{NoCRC: true}, "MPA rev 2, no CRC, no markers, peer-to-peer with zero-length write", nil},
		{"rev 2 begun by a READ", iwarp.Options{RTR: iwarp.RTRRead}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length read", nil},
		{"rev 2 client first", iwarp.Options{NoPeerToPeer: true}, "MPA rev 2, CRC32C, no markers", nil},
		// Revision 1 carries no IRD and ORD. The C server takes those of the
		// request, so it would serve with none; with -q it says its own, 1.
		{"rev 1", iwarp.Options{Revision: 1}, "MPA rev 1, CRC32C, no markers", []string{"-q"}},
		{"rev 1 without CRC", iwarp.Options{Revision: 1, NoCRC: true}, "MPA rev 1, no CRC, no markers", []string{"-q"}},
		{"small FPDUs", iwarp.Options{MaxPayload: 256}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length write", nil},
	} {
		for _, d := range doses(i) {
			t.Run(fmt.Sprintf("%s/%d", h.name, d.size), func(t *testing.T) { rpingClient(t, p, h, d) })
		}
	}
}

// rpingClient is one run of our client.
func rpingClient(t *testing.T, p port, h habit, d dose) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	at := p.fresh()
	c := run(ctx, t, append([]string{"rping", "-s", "-a", p.addr, "-p", at, "-S", fmt.Sprint(d.size)}, h.args...)...)
	dev := softDevice(t, h.opts)
	var info rdma.ConnInfo
	err := whenListening(ctx, func() (err error) {
		info, err = ping(ctx, dev, p.addr+":"+at, d.count, d.size, rdma.ConnParams{})
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, c.out.Bytes())
	}
	// We have compared. The exit code of the C server tells only whether it
	// saw the end of the connection or a flushed request first.
	c.over()
	if info.Detail != h.want {
		t.Errorf("negotiated %q, want %q", info.Detail, h.want)
	}
}

// TestRpingServer: the C client on siw, our server. Here the variant of the
// driver decides how the connection begins.
func TestRpingServer(t *testing.T) {
	p := siwPort(t)
	for i, h := range []habit{
		{"CRC", iwarp.Options{}, asInitiator(variant(), true), nil},
		{"no CRC", iwarp.Options{NoCRC: true}, asInitiator(variant(), false), nil},
		{"small FPDUs", iwarp.Options{MaxPayload: 256}, asInitiator(variant(), true), nil},
	} {
		for _, d := range doses(i) {
			t.Run(fmt.Sprintf("%s/%d", h.name, d.size), func(t *testing.T) { rpingServer(t, p, h, d) })
		}
	}
}

// rpingServer is one run of our server.
func rpingServer(t *testing.T, p port, h habit, d dose) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dev := softDevice(t, h.opts)
	l, err := dev.Listen(ctx, p.addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, at, _ := strings.Cut(l.Addr().String(), ":")
	// -V compares, and says so with its exit code.
	c := run(ctx, t, "rping", "-c", "-V", "-a", p.addr, "-p", at, "-C", fmt.Sprint(d.count), "-S", fmt.Sprint(d.size))
	got, info, err := servePing(ctx, dev, l, rdma.ConnParams{})
	if err != nil || got != d.count {
		t.Errorf("served %d of %d: %v", got, d.count, err)
	}
	c.ended()
	if info.Detail != h.want {
		t.Errorf("negotiated %q, want %q", info.Detail, h.want)
	}
}

// asInitiator is what comes of a connection that a variant of siw begins with
// an end that does or does not ask for CRC.
func asInitiator(variant string, crc bool) string {
	revision, mode, sum := 2, "", "no CRC"
	switch variant {
	case siw.Variant{Revision1: true}.String():
		revision = 1
	case siw.Variant{RequireCRC: true}.String():
		crc = true
	case siw.Variant{PeerToPeer: true}.String():
		mode = ", peer-to-peer with zero-length write"
	}
	if crc {
		sum = "CRC32C"
	}
	return fmt.Sprintf("MPA rev %d, %s, no markers%s", revision, sum, mode)
}
