package clients

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/load"
)

// peer answers one connection by a script: each line read, or block of bytes, is
// answered by the next string.
func script(t *testing.T, answers ...string) (network, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buf := make([]byte, 1<<16)
		for _, a := range answers {
			if _, err := conn.Read(buf); err != nil {
				return
			}
			if _, err := conn.Write([]byte(a)); err != nil {
				return
			}
		}
	}()
	return "tcp", l.Addr().String()
}

func TestAnswersOfRedis(t *testing.T) {
	for answer, want := range map[string]struct {
		value string
		err   error
	}{
		"$5\r\nhello\r\n":           {"hello", nil},
		"$0\r\n\r\n":                {"", nil},
		"$-1\r\n":                   {"", load.ErrNotFound},
		"-ERR no\r\n":               {"", ErrProtocol},
		"$x\r\n":                    {"", ErrProtocol},
		"$99999999999999999999\r\n": {"", ErrProtocol},
		"$1000000000\r\n":           {"", ErrProtocol},
		"$2\r\nhello\r\n":           {"", ErrProtocol},
		"\n":                        {"", ErrProtocol},
		"$":                         {"", errEnd},
		"$5\r\nhel":                 {"", errEnd},
	} {
		network, addr := script(t, answer)
		r, err := DialRedis(t.Context(), network, addr)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := r.Get(t.Context(), []byte("k"), make([]byte, 0, 16))
		judge(t, answer, string(got), err, want.value, want.err)
		r.Close()
	}
}

func TestAnswersOfMemcached(t *testing.T) {
	for answer, want := range map[string]struct {
		value string
		err   error
	}{
		"VA 5\r\nhello\r\n": {"hello", nil},
		"VA 0 \r\n\r\n":     {"", nil},
		"EN\r\n":            {"", load.ErrNotFound},
		"ERROR\r\n":         {"", ErrProtocol},
		"VA \r\n":           {"", ErrProtocol},
		"VA -1\r\n":         {"", ErrProtocol},
		"VA 5\r\nhell":      {"", errEnd},
	} {
		network, addr := script(t, answer)
		m, err := DialMemcache(t.Context(), network, addr)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := m.Get(t.Context(), []byte("k"), nil)
		judge(t, answer, string(got), err, want.value, want.err)
		m.Close()
	}
}

// errEnd stands for any error of a connection that has ended.
var errEnd = errors.New("the connection ended")

func judge(t *testing.T, answer, got string, err error, want string, wantErr error) {
	t.Helper()
	switch {
	case wantErr == errEnd:
		if err == nil || errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v, want the end of the connection", answer, err)
		}
	case !errors.Is(err, wantErr):
		t.Errorf("%q: %v, want %v", answer, err, wantErr)
	case wantErr == nil && got != want:
		t.Errorf("%q: %q, want %q", answer, got, want)
	}
}

func TestPipelinesOneByOne(t *testing.T) {
	network, addr := script(t, "$1\r\na\r\n$-1\r\n$2\r\nbc\r\n", "+OK\r\n-ERR full\r\n")
	r, err := DialRedis(t.Context(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	keys, values, errs := [][]byte{[]byte("1"), []byte("2"), []byte("3")}, make([][]byte, 3), make([]error, 3)
	r.GetMany(t.Context(), keys, values, errs)
	if string(values[0]) != "a" || string(values[2]) != "bc" || errs[0] != nil || !errors.Is(errs[1], load.ErrNotFound) || errs[2] != nil {
		t.Errorf("%q, %v", values, errs)
	}
	r.PutMany(t.Context(), keys[:2], values[:2], errs[:2])
	if errs[0] != nil || !errors.Is(errs[1], ErrProtocol) {
		t.Errorf("%v", errs[:2])
	}
}

func TestRequestsOnTheWire(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{string(AppendRedisGet(nil, []byte("key"))), "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"},
		{string(AppendRedisSet(nil, []byte("key"), []byte("value"))), "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n"},
		{string(appendWait(nil, 1)), "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n"},
		{string(AppendMemcacheGet(nil, []byte("key"))), "mg key v\r\n"},
		{string(AppendMemcacheSet(nil, []byte("key"), []byte("value"))), "ms key 5\r\nvalue\r\n"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestParseRedisBench(t *testing.T) {
	const header = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n"
	s, err := parseRedisBench(header+`"GET","150150.14","0.183","0.072","0.175","0.239","0.343","1.143"`+"\n", "get")
	if err != nil || s.Rate != 150150.14 || math.Abs(s.P50-175) > 1e-9 || math.Abs(s.P99-343) > 1e-9 || math.Abs(s.Max-1143) > 1e-9 {
		t.Errorf("%+v, %v", s, err)
	}
	// A warning stands before the figures of some configurations.
	if _, err := parseRedisBench("WARNING: Could not fetch server CONFIG\n"+header+`"SET","1","1","1","1","1","1","1"`, "set"); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"nothing":     "",
		"other test":  header + `"SET","1","1","1","1","1","1","1"`,
		"short line":  header + `"GET","1"`,
		"no number":   header + `"GET","x","1","1","1","1","1","1"`,
		"negative":    header + `"GET","-1","1","1","1","1","1","1"`,
		"nothing got": header + `"GET","0","1","1","1","1","1","1"`,
		"no header":   `"GET","1","1","1","1","1","1","1"`,
	} {
		if _, err := parseRedisBench(text, "get"); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseNative(t *testing.T) {
	s, err := parseNative([]byte(`{"ops":10,"seconds":2,"p50_ns":1500,"p90_ns":1,"p99_ns":1,"p999_ns":1,"max_ns":9000}`), 64)
	if err != nil || s.Ops != 640 || s.Rate != 320 || s.P50 != 1.5 || s.Max != 9 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "{}", `{"ops":1}`, `{"ops":0,"seconds":1}`} {
		if _, err := parseNative([]byte(bad), 1); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestRequestFiles(t *testing.T) {
	keys := [][]byte{[]byte("k1"), []byte("k2"), []byte("k3"), []byte("k4"), []byte("k5")}
	r, err := MemcacheDialect().Gets(t.TempDir(), keys, 64, 2)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(r.File)
	if err != nil {
		t.Fatal(err)
	}
	if want := "mg k1 v\r\nmg k2 v\r\nmg k3 v\r\nmg k4 v\r\n"; string(data) != want || r.Request != len(want)/2 ||
		r.Answer != 2*len("VA 64\r\n\r\n")+128 || r.First != "V" || r.Batch != 2 {
		t.Errorf("%q, %+v", data, r)
	}
	for d, want := range map[*Dialect]struct {
		request string
		answer  string
	}{
		ptr(RedisMGet()):         {"*3\r\n$4\r\nMGET\r\n$2\r\nk1\r\n$2\r\nk2\r\n", "*2\r\n$3\r\nabc\r\n$3\r\ndef\r\n"},
		ptr(MemcacheMultiGet(2)): {"get k1 k2\r\n", "VALUE k1 0 3\r\nabc\r\nVALUE k2 0 3\r\ndef\r\nEND\r\n"},
	} {
		r, err := d.Gets(t.TempDir(), keys[:2], 3, 2)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(r.File)
		if err != nil || string(data) != want.request || r.Answer != len(want.answer) || r.First != want.answer[:1] {
			t.Errorf("%s: %q, %+v, %v", d.Name, data, r, err)
		}
	}
	if _, err := RedisDialect().Sets(t.TempDir(), [][]byte{[]byte("a"), []byte("bb")}, 1, 1); err == nil {
		t.Error("keys of two lengths")
	}
	if _, err := RedisDialect().Gets(t.TempDir(), keys, 1, 6); err == nil {
		t.Error("no whole batch")
	}
}

func ptr(d Dialect) *Dialect { return &d }

// TestNative compiles the client in C and lets it ask a server that answers in
// pieces, over one connection and over several, and one that answers wrongly.
func TestNative(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc")
	}
	ctx := t.Context()
	n, err := CompileNative(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp", "unix"} {
		for _, spin := range []bool{false, true} {
			s, err := n.Floor(ctx, PingPong{Network: network, Spin: spin, Request: 52, Answer: 200, Duration: 30 * time.Millisecond})
			if err != nil || s.Ops == 0 || s.P50 <= 0 {
				t.Errorf("%s, spin %v: %+v, %v", network, spin, s, err)
			}
		}
	}
	keys := make([][]byte, 100)
	for i := range keys {
		keys[i] = load.Keys{Prefix: "key:", Size: 16}.Append(nil, uint64(i))
	}
	r, err := RedisDialect().Gets(t.TempDir(), keys, 10, 2)
	if err != nil {
		t.Fatal(err)
	}
	hit := "$10\r\n0123456789\r\n"
	for _, connections := range []int{1, 5} {
		addr := answering(t, r.Request, hit+hit)
		s, err := n.Ask(ctx, Ask{TCP: addr, Requests: r, Connections: connections, Duration: 50 * time.Millisecond})
		if err != nil || s.Ops == 0 || s.Ops%2 != 0 {
			t.Errorf("%d connections: %+v, %v", connections, s, err)
		}
		addr = answering(t, r.Request, strings.Repeat("-ERR 789\r\n", 4)[:len(hit+hit)])
		if s, err := n.Ask(ctx, Ask{TCP: addr, Requests: r, Connections: connections, Duration: 50 * time.Millisecond}); err == nil || !strings.Contains(err.Error(), "the answer begins with -") { // a piece of it, perhaps
			t.Errorf("%d connections, wrong answers: %+v, %v", connections, s, err)
		}
	}
}

// answering is a server that answers each n bytes with answer, in two pieces.
func answering(t *testing.T, n int, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buf := make([]byte, n)
				for {
					if _, err := io.ReadFull(conn, buf); err != nil {
						return
					}
					for _, part := range []string{answer[:3], answer[3:]} {
						if _, err := conn.Write([]byte(part)); err != nil {
							return
						}
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func TestPingPongInGo(t *testing.T) {
	for _, spin := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := PingPong{Network: "tcp", Spin: spin, Request: 10, Answer: 100_000, Duration: 50 * time.Millisecond}
		done := make(chan error, 1)
		go func() { done <- AnswerPingPong(l, p) }()
		s, err := RunPingPong(t.Context(), l.Addr().String(), p)
		if err != nil || s.Ops == 0 {
			t.Errorf("spin %v: %+v, %v", spin, s, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		l.Close()
	}
}

func TestStream(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := Stream{Chunk: 1 << 16, Congestion: "reno", Duration: 50 * time.Millisecond}
	done := make(chan error, 1)
	go func() { done <- SendStream(l, s) }()
	got, err := ReceiveStream(t.Context(), l.Addr().String(), s)
	if err != nil || got.Ops == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestEndsWithContext: a peer that never answers delays no other call.
func TestEndsWithContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if s, err := RunPingPong(ctx, l.Addr().String(), PingPong{Network: "tcp", Request: 1, Answer: 1, Duration: time.Hour}); err == nil {
		t.Errorf("%+v", s)
	}
}

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	if s, err := Appends(dir, 100, 20*time.Millisecond); err != nil || s.Ops == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, each := range []bool{true, false} {
		s, err := Overwrites(t.TempDir(), 1<<20, each, 20*time.Millisecond)
		if err != nil && !errors.Is(err, syscall.EINVAL) || err == nil && (s.Ops == 0 || s.Rate <= 0) {
			t.Errorf("%+v, %v", s, err) // EINVAL: the file system has no direct access
		}
	}
	if s, err := Copies(1024, 20*time.Millisecond); err != nil || s.Ops == 0 || s.Ops%256 != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestSampleOfSlowCalls: calls that take longer than all the time that there is, as on a machine with
// other work, are a sample all the same: one warms up, one is timed. It failed with "nothing was done"
// when the first was not back in time.
func TestSampleOfSlowCalls(t *testing.T) {
	const d = 100 * time.Nanosecond
	calls, broken := 0, errors.New("broken")
	slow := func() error {
		calls++
		for from := time.Now(); time.Since(from) < 10*d; {
		}
		return nil
	}
	s, err := sample(d, slow)
	if err != nil || calls != 2 || s.Ops != 1 || s.Rate <= 0 || s.P50 <= 0 || s.Seconds <= 0 {
		t.Errorf("%d calls: %+v, %v", calls, s, err)
	}
	for fails := 1; fails <= 2; fails++ {
		calls = 0
		if s, err := sample(d, func() error {
			if _ = slow(); calls == fails {
				return broken
			}
			return nil
		}); !errors.Is(err, broken) || calls != fails {
			t.Errorf("call %d fails: %d calls, %+v, %v", fails, calls, s, err)
		}
	}
}
