package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/test/node"
)

// mpaRequest is an MPA request frame (RFC 5044 section 7.1.1) that promises
// length bytes of private data and carries private.
func mpaRequest(revision byte, length int, private []byte) []byte {
	b := append([]byte("MPA ID Req Frame"), 0x40, revision) // CRC wanted
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	return append(b, private...)
}

// hostileStreams are what a hostile client may send, each on a connection of its
// own.
func hostileStreams(rnd *rand.Rand) map[string][]byte {
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	connect := wire.AppendConnect(nil, nil, wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax})
	// Revision 2 puts IRD and ORD before our private data.
	hello := mpaRequest(1, len(connect), connect)
	return map[string][]byte{
		"nothing":                 nil,
		"one byte":                {'M'},
		"noise":                   noise(5000),
		"zeros":                   make([]byte, 5000),
		"HTTP":                    []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS":                     append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, noise(500)...),
		"RESP":                    []byte("*1\r\n$4\r\nPING\r\n"),
		"half a request":          hello[:15],
		"request of revision 0":   mpaRequest(0, 0, nil),
		"request of revision 99":  mpaRequest(99, 0, nil),
		"no private data":         mpaRequest(1, 0, nil),
		"private data cut off":    mpaRequest(1, 40, connect[:10]),
		"much private data":       mpaRequest(1, 65535, noise(65535)),
		"foreign private data":    mpaRequest(1, 40, noise(40)),
		"private data promised":   mpaRequest(1, 512, nil),
		"reply in place of it":    append([]byte("MPA ID Rep Frame"), 0x40, 1, 0, 0),
		"good start, then noise":  append(append([]byte{}, hello...), noise(20000)...),
		"good start, then zeros":  append(append([]byte{}, hello...), make([]byte, 20000)...),
		"good start, then length": append(append([]byte{}, hello...), 0xff, 0xff, 0x41, 0x43, 0, 0, 0, 0),
		"good start, a READ": append(append([]byte{}, hello...),
			// FPDU of a READ Request, to a server that has granted nothing.
			0, 46, 0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0,
			0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
			0, 0, 0, 0),
	}
}

// TestHostileFrames lets attackers at the data port while an honest client
// works. Only the attackers notice anything.
func TestHostileFrames(t *testing.T) {
	onlyIWARP(t)
	t.Logf("seed %d", *seedFlag)
	rnd := rand.New(rand.NewPCG(*seedFlag, 4))
	n := startNode(t, t.TempDir())
	c := dial(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var calls int
	wg.Go(func() {
		for i := uint64(1); ctx.Err() == nil; i++ {
			key := fmt.Appendf(nil, "honest %d", i%100)
			value := appendRecord(nil, key, i, 200)
			if err := c.Put(ctx, key, value); err != nil {
				if ctx.Err() == nil {
					t.Errorf("the honest client: %v", err)
				}
				return
			}
			got, err := c.Get(ctx, key)
			if err != nil || string(got) != string(value) {
				if ctx.Err() == nil {
					t.Errorf("the honest client: %q, %v", got, err)
				}
				return
			}
			calls++
		}
	})
	before := rss(t, n)
	streams := hostileStreams(rnd)
	for name, data := range streams {
		for range 5 {
			stranger(t, name, n.Data, data)
		}
	}
	// Connections that stay and say nothing, or one byte now and then.
	var idle []net.Conn
	for range 300 {
		conn, err := net.Dial("tcp", n.Data)
		if err != nil {
			break // refusing them is as good
		}
		defer conn.Close()
		idle = append(idle, conn)
		_, _ = conn.Write([]byte("M"))
	}
	t.Logf("%d idle connections stand", len(idle))
	// A new honest client gets in while they do, or after the server has
	// thrown them out, which it does after seconds.
	late := dial(t, n, func(cfg *client.Config) { cfg.Timeout = 30 * time.Second })
	if _, err := late.Get(t.Context(), []byte("absent")); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a new client: %v", err)
	}
	cancel()
	wg.Wait()
	if calls == 0 {
		t.Error("the honest client did nothing")
	}
	after := rss(t, n)
	t.Logf("%d honest calls; resident memory %d MiB before, %d MiB after", calls, before>>20, after>>20)
	if after > before+128<<20 {
		t.Errorf("resident memory grew from %d to %d bytes", before, after)
	}
	if code, err := n.Stop(20 * time.Second); err != nil || code != 0 {
		t.Errorf("exit code %d, %v", code, err)
	}
	if strings.Contains(n.Stderr(), "panic") {
		t.Errorf("the node panicked:\n%s", n.Stderr())
	}
}

// stranger sends a stream and waits a moment for the server to hang up.
func stranger(t *testing.T, name, addr string, data []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("%s: the server does not accept any more: %v", name, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = conn.Write(data) // the server may have hung up already
	reply, _ := io.ReadAll(io.LimitReader(conn, 1<<20))
	if len(reply) > 1<<16 {
		t.Errorf("%s: %d bytes came back", name, len(reply))
	}
}

// rss is the resident memory of a node, in bytes.
func rss(t testing.TB, n *node.Node) int64 {
	t.Helper()
	data, err := n.ReadProc("statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// connect opens a connection by the fabric with any private data.
func connect(t *testing.T, addr string, private []byte) (rdma.ConnInfo, error) {
	t.Helper()
	dev, err := newFabric().Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	cq, err := dev.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	defer qp.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return qp.Connect(ctx, addr, rdma.ConnParams{PrivateData: private})
}

// TestProtocolVersions: a client of another version is told so, with the
// versions that the server speaks.
func TestProtocolVersions(t *testing.T) {
	n := startNode(t, t.TempDir())
	for _, tc := range []struct {
		name   string
		min    uint8
		max    uint8
		status wire.Status
	}{
		{"newer", wire.VersionMax + 1, wire.VersionMax + 3, wire.StatusVersion},
		{"much newer", 255, 255, wire.StatusVersion},
		{"newer and this one", wire.VersionMin, wire.VersionMax + 1, wire.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			info, err := connect(t, n.Data, wire.AppendConnect(nil, nil, wire.Connect{Min: tc.min, Max: tc.max}))
			if tc.status == wire.StatusOK {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, rdma.ErrRejected) {
				t.Fatalf("error %v, want a refusal", err)
			}
			r, err := wire.ParseReject(wire.Unpad(info.PrivateData, wire.RejectSize))
			if err != nil || r.Status != tc.status || r.Min != wire.VersionMin || r.Max != wire.VersionMax {
				t.Errorf("refused with %+v, %v, want status %v and versions %d to %d", r, err, tc.status, wire.VersionMin, wire.VersionMax)
			}
		})
	}
}

// TestSecrets: a client that does not know the secret gets nothing, and is told
// no more than that.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	write := func(name, secret string, mode os.FileMode) string {
		path := dir + "/" + name
		if err := os.WriteFile(path, []byte(secret), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", "the secret of this store\n", 0o600)
	wrong := write("wrong", "another secret of that len\n", 0o600)
	loose := write("loose", "the secret of this store\n", 0o644)
	n := startNode(t, dir+"/data", "--secret-file", good)
	kv := func(args ...string) result {
		return runProgram(t, nil, nil, "kvclient", append([]string{"--server", n.Data, "--timeout", "20s"}, args...)...)
	}
	if r := kv("--secret-file", good, "put", "k", "v"); r.code != 0 {
		t.Errorf("with the secret: %+v", r)
	}
	checkRefused(t, kv("--secret-file", wrong, "get", "k"), 1, "authentication failed")
	checkRefused(t, kv("get", "k"), 1, "authentication failed")
	checkRefused(t, kv("--secret-file", loose, "get", "k"), 2, "mode 0644")
	public := startNode(t, dir+"/public")
	r := runProgram(t, nil, nil, "kvclient", "--server", public.Data, "--timeout", "20s", "--secret-file", good, "get", "k")
	checkRefused(t, r, 1, "authentication failed")
	if strings.Contains(n.Stderr(), "secret of") {
		t.Error("the log shows a secret")
	}
}
