package tcp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

const patience = 30 * time.Second

func listenHere(t *testing.T, opts Options) *Listener {
	t.Helper()
	if opts.MaxPending == 0 {
		opts.MaxPending = 128
	}
	if opts.SetupTimeout == 0 {
		opts.SetupTimeout = patience
	}
	l, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func dialHere(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

func sendRequest(t *testing.T, c net.Conn, private string) {
	t.Helper()
	f := frame{kind: frameRequest, end: goodEndpoint(), private: []byte(private)}
	if _, err := c.Write(f.append(nil)); err != nil {
		t.Fatal(err)
	}
}

func accept(t *testing.T, l *Listener) *Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func expectReject(t *testing.T, c net.Conn, private string) {
	t.Helper()
	f, err := readFrame(c)
	if err != nil || f.kind != frameReject || string(f.private) != private {
		t.Errorf("%+v (%q), %v; want a reject with %q", f, f.private, err, private)
	}
}

func TestListenReject(t *testing.T) {
	l := listenHere(t, Options{})
	c := dialHere(t, l)
	sendRequest(t, c, "let me in")
	r := accept(t, l)
	if string(r.PrivateData()) != "let me in" || r.RemoteAddr().String() != c.LocalAddr().String() {
		t.Errorf("request %q from %v", r.PrivateData(), r.RemoteAddr())
	}
	if err := r.Reject(make([]byte, MaxPrivate+1)); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("too much private data: %v", err)
	}
	if err := r.Reject([]byte("no")); err != nil {
		t.Error(err)
	}
	expectReject(t, c, "no")
	if err := r.Reject(nil); !errors.Is(err, rdma.ErrNotConnected) {
		t.Errorf("rejected twice: %v", err)
	}
}

// Peers that are silent, slow or speak something else cost no more than their
// place, for a bounded time, and others get through.
func TestListenHostilePeers(t *testing.T) {
	l := listenHere(t, Options{SetupTimeout: 300 * time.Millisecond})
	silent, http, half, wrong := dialHere(t, l), dialHere(t, l), dialHere(t, l), dialHere(t, l)
	_, _ = http.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	_, _ = half.Write([]byte("RKQP"))
	bye := frame{kind: frameBye}
	_, _ = wrong.Write(bye.append(nil))
	good := dialHere(t, l)
	sendRequest(t, good, "good")
	r := accept(t, l)
	if string(r.PrivateData()) != "good" {
		t.Errorf("accepted %q", r.PrivateData())
	}
	for name, c := range map[string]net.Conn{"silent": silent, "http": http, "half": half, "wrong": wrong} {
		if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: read %d, %v; want to be dropped", name, n, err)
		}
	}
	// The program does not answer its request: the peer is dropped, and it is too late.
	if _, err := good.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the forgotten peer: %v", err)
	}
	if err := r.Reject(nil); !errors.Is(err, rdma.ErrNotConnected) {
		t.Errorf("a request that was dropped: %v", err)
	}
}

// Many peers that send nothing do not keep out one that does, though each of
// them might for the whole set-up time.
func TestListenFlood(t *testing.T) {
	const limit = 4
	l := listenHere(t, Options{MaxPending: limit, SetupTimeout: 10 * patience})
	var silent []net.Conn
	for range 5 * limit {
		silent = append(silent, dialHere(t, l))
	}
	good := dialHere(t, l)
	sendRequest(t, good, "good")
	r := accept(t, l)
	if string(r.PrivateData()) != "good" {
		t.Errorf("accepted %q", r.PrivateData())
	}
	if err := r.Reject(nil); err != nil {
		t.Error(err)
	}
	expectReject(t, good, "")
	// The oldest had to go, the latest may stay.
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first silent peer: %v", err)
	}
	if err := silent[len(silent)-1].SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := silent[len(silent)-1].Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the last silent peer: %v", err)
	}
}

// A peer that gave up while it was queued is not handed to the program.
func TestListenGaveUp(t *testing.T) {
	l := listenHere(t, Options{})
	gone, chatty, here := dialHere(t, l), dialHere(t, l), dialHere(t, l)
	sendRequest(t, gone, "gone")
	sendRequest(t, chatty, "chatty")
	sendRequest(t, chatty, "chatty again")
	for deadline := time.Now().Add(patience); l.queue.Len() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the requests never came")
		}
	}
	_ = gone.(*net.TCPConn).SetLinger(0) // a reset: nothing is under way behind it
	_ = gone.Close()
	sendRequest(t, here, "here")
	r := accept(t, l)
	if string(r.PrivateData()) != "here" {
		t.Errorf("accepted %q", r.PrivateData())
	}
	if err := r.Reject(nil); err != nil {
		t.Error(err)
	}
}

// No more wait than MaxPending; the rest is told so.
func TestListenBounded(t *testing.T) {
	const limit = 3
	l := listenHere(t, Options{MaxPending: limit})
	var waiting []net.Conn
	for range limit {
		c := dialHere(t, l)
		sendRequest(t, c, "")
		waiting = append(waiting, c)
	}
	// Which of them are queued is theirs; one more than fit is refused.
	refused := make(chan bool, limit+1)
	late := dialHere(t, l)
	sendRequest(t, late, "")
	for _, c := range append(waiting, late) {
		go func() {
			f, err := readFrame(c)
			refused <- err == nil && f.kind == frameReject && string(f.private) == "verbs: too many connection requests"
		}()
	}
	if !<-refused {
		t.Error("the first to be answered was not refused for the limit")
	}
	for range limit {
		if err := accept(t, l).Reject([]byte("later")); err != nil {
			t.Error(err)
		}
	}
	for range limit {
		if <-refused {
			t.Error("more than one was refused for the limit")
		}
	}
}

func TestListenClose(t *testing.T) {
	l := listenHere(t, Options{})
	queued, silent := dialHere(t, l), dialHere(t, l)
	sendRequest(t, queued, "")
	for deadline := time.Now().Add(patience); l.queue.Len() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the request never came")
		}
	}
	l.Close()
	expectReject(t, queued, "verbs: listener closed")
	if _, err := l.Accept(t.Context()); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("a silent peer outlives the listener")
	}
	l.Close() // again, which does nothing
}
