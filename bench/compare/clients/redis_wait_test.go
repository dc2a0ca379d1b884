package clients

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestWaits: a put is done when SET and WAIT are both answered, and failed if too few replicas
// have it.
func TestWaits(t *testing.T) {
	for answer, want := range map[string]error{
		"+OK\r\n:1\r\n":                   nil,
		"+OK\r\n:2\r\n":                   nil,
		"+OK\r\n:0\r\n":                   ErrProtocol,
		"+OK\r\n+OK\r\n":                  ErrProtocol,
		"+OK\r\n:\r\n":                    ErrProtocol,
		"+OK\r\n:-1\r\n":                  ErrProtocol,
		"+OK\r\n-ERR WAIT cannot be used": errEnd,
		"-ERR full\r\n:2\r\n":             ErrProtocol,
		"+OK\r\n":                         errEnd,
	} {
		network, addr := script(t, answer)
		r, err := DialRedisWait(t.Context(), network, addr, 1)
		if err != nil {
			t.Fatal(err)
		}
		judge(t, answer, "", r.Put(t.Context(), []byte("k"), []byte("v")), "", want)
		r.Close()
	}
}

// TestWaitsOnceForMany: one WAIT stands for all SETs before it. What it does not vouch for has
// failed, and the answers stay in step.
func TestWaitsOnceForMany(t *testing.T) {
	network, addr := script(t, "+OK\r\n-ERR full\r\n:1\r\n", "+OK\r\n+OK\r\n:0\r\n", "+OK\r\n:2\r\n")
	r, err := DialRedisWait(t.Context(), network, addr, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	keys, values := [][]byte{[]byte("1"), []byte("2")}, [][]byte{[]byte("a"), []byte("b")}
	errs := make([]error, 2)
	r.PutMany(t.Context(), keys, values, errs)
	if errs[0] != nil || !errors.Is(errs[1], ErrProtocol) {
		t.Errorf("one SET failed: %v", errs)
	}
	r.PutMany(t.Context(), keys, values, errs)
	if !errors.Is(errs[0], ErrProtocol) || !errors.Is(errs[1], ErrProtocol) {
		t.Errorf("no replica has them: %v", errs)
	}
	if err := r.Put(t.Context(), keys[0], values[0]); err != nil {
		t.Errorf("the answers are out of step: %v", err)
	}
}

// TestRequestsThatWait: a file of requests has a WAIT behind the SETs of each batch, and the
// client in C takes the answer to both.
func TestRequestsThatWait(t *testing.T) {
	keys := [][]byte{[]byte("k1"), []byte("k2"), []byte("k3"), []byte("k4")}
	const wait = "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n"
	set := func(key string) string { return "*3\r\n$3\r\nSET\r\n$2\r\n" + key + "\r\n$3\r\nabc\r\n" }
	for batch, want := range map[int]struct{ first, answer string }{
		1: {set("k1") + wait, "+OK\r\n:2\r\n"},
		2: {set("k1") + set("k2") + wait, "+OK\r\n+OK\r\n:1\r\n"},
	} {
		r, err := RedisWait().Sets(t.TempDir(), keys, 3, batch)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(r.File)
		if err != nil || !strings.HasPrefix(string(data), want.first) || r.Request != len(want.first) || len(data) != len(keys)/batch*r.Request ||
			r.Answer != len(want.answer) || r.First != "+" || r.Batch != batch {
			t.Errorf("batches of %d: %q, %+v, %v", batch, data, r, err)
		}
		if _, err := exec.LookPath("gcc"); err != nil {
			continue // as TestNative: there is nothing to compile the client with
		}
		n, err := CompileNative(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s, err := n.Ask(t.Context(), Ask{TCP: answering(t, r.Request, want.answer), Requests: r, Connections: 3, Duration: 50 * time.Millisecond})
		if err != nil || s.Ops == 0 || s.Ops%uint64(batch) != 0 {
			t.Errorf("batches of %d: %+v, %v", batch, s, err)
		}
	}
}
