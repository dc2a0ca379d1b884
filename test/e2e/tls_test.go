package e2e

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/rdmatest"
)

// TestTLS: a node and its clients inside TLS, from the keys of the
// configuration; one-sided gets work, nothing can be read on the way, and a
// client with the wrong certificate, or none, is told what is wrong.
func TestTLS(t *testing.T) {
	onlyIWARP(t)
	t.Parallel()
	dir := t.TempDir()
	files := func(name string, ca *rdmatest.CA, host string) []string {
		t.Helper()
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		cert, key, authority := ca.Write(t, sub, []string{host})
		return []string{"--tls-cert", cert, "--tls-key", key, "--tls-ca", authority}
	}
	ca := rdmatest.NewCA(t)
	n := startNode(t, filepath.Join(dir, "data"), files("server", ca, *hostFlag)...)
	relay := listenIn(t, n.Data)
	ours := files("client", ca, "client.example")
	run := func(tls []string, args ...string) result {
		return runProgram(t, nil, nil, "kvclient", append(append([]string{"--server", relay.addr, "--timeout", "5s"}, tls...), args...)...)
	}
	const value = "nobody on the way may read this"
	if r := run(ours, "put", "key-in-the-clear", value); r.code != 0 {
		t.Fatalf("put: %s", r.stderr)
	}
	if r := run(ours, "get", "key-in-the-clear"); r.code != 0 || !strings.Contains(r.stdout, value) {
		t.Fatalf("get: %q %s", r.stdout, r.stderr)
	}
	c := dial(t, n, func(cfg *client.Config) {
		cfg.Fabrics = []rdma.Fabric{iwarp.New(iwarp.Options{TLS: ca.Config(t, []string{"library.example"}, nil)})}
	})
	waitOneSided(t, c)
	for range 3 {
		if got, err := c.Get(t.Context(), []byte("key-in-the-clear")); err != nil || string(got) != value {
			t.Fatalf("the library: %q, %v", got, err)
		}
	}
	if s := c.Counters(); s.OneSidedHits == 0 {
		t.Errorf("no get was one-sided: %+v", s)
	}
	for name, tc := range map[string]struct {
		tls  []string
		want string
	}{
		"another CA":     {files("stranger", rdmatest.NewCA(t), "client.example"), "not of a CA that tls.ca names"},
		"no certificate": {nil, "this listener wants TLS"},
	} {
		if r := run(tc.tls, "get", "key-in-the-clear"); r.code == 0 || !strings.Contains(r.stderr, tc.want) {
			t.Errorf("%s: exit code %d, %s", name, r.code, r.stderr)
		}
	}
	if seen := relay.seen(); len(seen) == 0 || strings.Contains(seen, value) || strings.Contains(seen, "key-in-the-clear") {
		t.Error("what was said can be read on the way")
	}
	r := runProgram(t, nil, nil, "kvserver", append(serverArgs(filepath.Join(dir, "other")), "--tls-cert", "/none")...)
	checkRefused(t, r, 2, "tls.key", "both ends prove themselves")
}

// An eavesdropper is a relay that records what passed.
type eavesdropper struct {
	addr string
	mu   sync.Mutex
	buf  strings.Builder
}

func listenIn(t *testing.T, to string) *eavesdropper {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := &eavesdropper{addr: l.Addr().String()}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			pipe := func(dst, src net.Conn) {
				_, _ = io.Copy(dst, io.TeeReader(src, w))
				_ = dst.(*net.TCPConn).CloseWrite()
			}
			go pipe(out, in)
			go pipe(in, out)
		}
	}()
	return w
}

func (w *eavesdropper) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *eavesdropper) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
