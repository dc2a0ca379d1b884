package security

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

var (
	fabricFlag = flag.String("fabric", "iwarp", "fabric of node and clients: iwarp or verbs")
	hostFlag   = flag.String("host", "127.0.0.1", "address that the node listens on")
	binFlag    = flag.String("bin", "", "directory with kvserver and kvclient; empty: build them")
	roundsFlag = flag.Int("rounds", 20, "rounds of tests of races")
	// Each round of TestScanFlood takes half a minute; a figure needs five of them.
	floodRounds = flag.Int("flood.rounds", 1, "rounds of TestScanFlood")
	openFlag    = flag.Int("half-open", 10_000, "half-open connections")
	seedFlag    = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random choices; a failure prints it")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *fabricFlag != "iwarp" && *fabricFlag != "verbs" {
		fmt.Fprintf(os.Stderr, "-fabric is %q, want iwarp or verbs\n", *fabricFlag)
		os.Exit(2)
	}
	if line := os.Getenv(floodEnv); line != "" {
		os.Exit(floodMain(line))
	}
	os.Exit(m.Run())
}

// random is the source of a test's choices.
func random(t *testing.T) *rand.Rand {
	t.Logf("run again with: go test ./test/security -run '^%s$' -seed %d", t.Name(), *seedFlag)
	return rand.New(rand.NewPCG(*seedFlag, 8))
}

func newFabric() rdma.Fabric {
	if *fabricFlag == "verbs" {
		return verbs.New(verbs.Options{})
	}
	return iwarp.New(iwarp.Options{})
}

func onlyIWARP(t *testing.T) {
	if *fabricFlag != "iwarp" {
		t.Skipf("about the bytes of the iwarp fabric; this run is on %s", *fabricFlag)
	}
}

// Secrets of the tests. They are looked for in everything that a node says.
const (
	mainSecret = "main-secret-0123456789"
	aliceWord  = "alice-secret-0123456789"
	bobWord    = "bob-secret-0123456789"
	readerWord = "reader-secret-0123456789"
	clerkWord  = "clerk-secret-0123456789"
	clerk2Word = "clerk2-secret-0123456789"
)

var allSecrets = []string{mainSecret, aliceWord, bobWord, readerWord, clerkWord, clerk2Word}

// tenants: alice and bob with spaces of their own, a reader of alice's, a clerk
// that may use keys of one prefix in the node's space.
func tenants() []server.Tenant {
	word := func(s string) secret.Text { return secret.New([]byte(s)) }
	return []server.Tenant{
		{Name: "alice", Secret: word(aliceWord), MemoryLimit: 32 << 20, MaxSessions: 64},
		{Name: "bob", Secret: word(bobWord), MemoryLimit: 32 << 20, MaxSessions: 64},
		{Name: "reader", Secret: word(readerWord), Space: "alice", ReadOnly: true, MaxSessions: 64},
		{Name: "clerk", Secret: word(clerkWord), Prefix: "desk/", MaxSessions: 64},
	}
}

// A rig is a node with tenants.
type rig struct {
	t   *testing.T
	srv *server.Server
	cfg server.Config
	log lockedBuffer
}

// A lockedBuffer takes a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startRig(t *testing.T, change func(*server.Config)) *rig {
	t.Helper()
	r := &rig{t: t}
	r.cfg = server.Config{
		Fabric: newFabric(), Listen: net.JoinHostPort(*hostFlag, "0"), AdminListen: "127.0.0.1:0",
		DataDir: t.TempDir(), Shards: 4, MemoryLimit: 128 << 20, RegionSize: 16 << 20, IndexRegionSize: 4 << 20,
		Secret: []byte(mainSecret), Tenants: tenants(), MaxSessions: 512,
		Logger: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&r.cfg)
	}
	r.start()
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			text := r.log.String()
			t.Logf("the node's log:\n%s", text[max(0, len(text)-8000):])
		}
		r.noSecrets("the log", r.log.String())
	})
	return r
}

func (r *rig) start() {
	r.t.Helper()
	if err := r.tryStart(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) tryStart() error {
	srv, err := server.New(r.cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		return err
	}
	r.srv = srv
	return nil
}

func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.srv.Shutdown(ctx); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) addr() string { return r.srv.Addrs()[0].String() }

// config is that of an honest client.
func (r *rig) config(tenant, word string) client.Config {
	return client.Config{
		Servers: []string{r.addr()}, Fabrics: []rdma.Fabric{newFabric()}, Tenant: tenant, Secret: []byte(word),
		Timeout: 30 * time.Second, DialTimeout: 20 * time.Second, MaxInflight: 16,
		BufferBytes: 8 << 20, StagingBytes: 68 << 20,
	}
}

func (r *rig) dial(tenant, word string, change ...func(*client.Config)) *client.Client {
	r.t.Helper()
	cfg := r.config(tenant, word)
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.Dial(r.t.Context(), cfg)
	if err != nil {
		r.t.Fatalf("%s: %v", tenant, err)
	}
	r.t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, client.ErrClosed) {
			r.t.Error(err)
		}
	})
	return c
}

// honest lets a client put and get until the function that it returns is called,
// which fails the test if any of its calls did.
func (r *rig) honest(tenant, word string) (stop func()) {
	r.t.Helper()
	c := r.dial(tenant, word)
	ctx, cancel := context.WithCancel(r.t.Context())
	done, first := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			key, value := fmt.Appendf(nil, "desk/honest %d", i%50), fmt.Appendf(nil, "value %d", i)
			err := c.Put(ctx, key, value)
			var got []byte
			if err == nil {
				got, err = c.Get(ctx, key)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil || !bytes.Equal(got, value) {
				r.t.Errorf("the honest client: %q, %v", got, err)
				return
			}
			if calls.Add(1) == 1 {
				close(first)
			}
		}
	}()
	select {
	case <-first:
	case <-done:
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			before := calls.Load()
			deadline := time.Now().Add(30 * time.Second)
			for calls.Load() <= before && !r.t.Failed() { // it works after the attack, too
				if time.Now().After(deadline) {
					r.t.Error("the honest client is not served any more")
					break
				}
				time.Sleep(time.Millisecond)
			}
			cancel()
			<-done
		})
	}
	r.t.Cleanup(stop)
	return stop
}

// eventually waits for something that the node does in its own time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after 30 s: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (r *rig) limit(name string) server.LimitStat {
	for _, l := range r.srv.Limits() {
		if l.Name == name {
			return l
		}
	}
	r.t.Fatalf("no limit %q", name)
	return server.LimitStat{}
}

func (r *rig) tenant(name string) server.TenantStat {
	for _, st := range r.srv.Tenants() {
		if st.Name == name {
			return st
		}
	}
	r.t.Fatalf("no tenant %q", name)
	return server.TenantStat{}
}

// metrics is what the admin port tells Prometheus.
func (r *rig) metrics() string {
	return fetchAny(r.t, "http://"+r.srv.AdminAddr().String()+"/metrics")
}

// metric is one value of a page of metrics; 0 if it is not there.
func metric(page, name string) uint64 {
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err == nil {
				return uint64(v)
			}
		}
	}
	return 0
}

// noSecrets fails if a text has a secret in it, as it is or in any usual encoding.
func (r *rig) noSecrets(what, text string) {
	for _, word := range allSecrets {
		hashed := sha256.Sum256([]byte(word))
		for _, form := range []string{word, hex.EncodeToString([]byte(word)), base64.StdEncoding.EncodeToString([]byte(word)),
			strings.Trim(fmt.Sprint([]byte(word)), "[]"), hex.EncodeToString(hashed[:])} {
			if strings.Contains(text, form) {
				r.t.Errorf("%s shows the secret %q as %q", what, word, form)
			}
		}
	}
}

// fetchAny is the page at a URL, whatever its status.
func fetchAny(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
