package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/driver"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// A box is an Endpoint that keeps what arrives.
type box struct {
	mu      sync.Mutex
	got     map[string][][]byte // by node
	bytes   int
	arrived chan struct{} // capacity 1
	refuse  error
	receive func(ctx context.Context, h consensus.SnapshotHead, data io.Reader) error
}

func newBox() *box { return &box{got: map[string][][]byte{}, arrived: make(chan struct{}, 1)} }

func (b *box) Deliver(node string, p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got[node] = append(b.got[node], bytes.Clone(p))
	b.bytes += len(p)
	select {
	case b.arrived <- struct{}{}:
	default:
	}
	return b.refuse
}

func (b *box) Receive(ctx context.Context, node string, h consensus.SnapshotHead, data io.Reader) error {
	return b.receive(ctx, h, data)
}

// wait waits until so many bytes have come.
func (b *box) wait(t *testing.T, n int) {
	t.Helper()
	limit := time.After(teeth.Patience(20 * time.Second))
	for {
		b.mu.Lock()
		have := b.bytes
		b.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-b.arrived:
		case <-limit:
			t.Fatalf("%d bytes of %d have come", have, n)
		}
	}
}

// A site is a node with a listener on the software RNIC.
type site struct {
	*Transport
	*box
	name string
	dev  rdma.Device
	ln   rdma.Listener
	stop context.CancelFunc
	done chan struct{}
}

// first is the only opening of a node.
var first = []wire.Opening{{Epoch: 1, Incarnation: 1}}

// A lan knows where sites are.
type lan struct {
	mu    sync.Mutex
	sites map[string]*site
}

func (l *lan) routes(from rdma.Device) func(string) []Route {
	return func(node string) []Route {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s := l.sites[node]; s != nil {
			return []Route{{from, s.ln.Addr().String()}}
		}
		return nil
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// open makes a site; change may change its configuration.
func (l *lan) open(t testing.TB, name string, change func(*Config)) *site {
	t.Helper()
	s := &site{box: newBox(), name: name, done: make(chan struct{})}
	s.dev = must(iwarp.New(iwarp.Options{}).Open(context.Background(), ""))
	s.ln = must(s.dev.Listen(context.Background(), "127.0.0.1:0"))
	c := Config{Name: name, Cluster: [16]byte{1}, Secret: []byte("secret"), Openings: first, Endpoint: s.box, Routes: l.routes(s.dev)}
	if change != nil {
		change(&c)
	}
	s.Transport = must(New(c))
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		accept(ctx, s.ln, s.dev, s.Transport)
	}()
	l.mu.Lock()
	l.sites[name] = s
	l.mu.Unlock()
	return s
}

// accept hands requests to a transport until ctx ends.
func accept(ctx context.Context, ln rdma.Listener, dev rdma.Device, t *Transport) {
	for {
		req, err := ln.Accept(ctx)
		if err != nil {
			return
		}
		t.Accept(dev, req)
	}
}

func (s *site) end(t testing.TB) {
	t.Helper()
	s.stop()
	<-s.done
	s.ln.Close()
	if err := s.Transport.Close(); err != nil {
		t.Errorf("%s: close: %v", s.name, err)
	}
	if err := s.dev.Close(); err != nil {
		t.Errorf("%s: close the device: %v", s.name, err)
	}
}

func two(t *testing.T) (a, b *site) {
	l := &lan{sites: map[string]*site{}}
	a, b = l.open(t, "a", nil), l.open(t, "b", nil)
	t.Cleanup(func() { a.end(t); b.end(t) })
	return a, b
}

// TestMessages: what is sent arrives whole, in its order, at both ends at once.
func TestMessages(t *testing.T) {
	a, b := two(t)
	rng := rand.New(rand.NewPCG(1, 1))
	var want [2]bytes.Buffer
	sum := [2]int{}
	for i := range 300 {
		p := make([]byte, 1+rng.IntN(300)*rng.IntN(300))
		for k := range p {
			p[k] = byte(i + k)
		}
		for {
			o := a.out(wire.LaneBulk, "b")
			if o == nil || o.waiting()+len(p) < QueueBulk {
				break
			}
			time.Sleep(time.Millisecond)
		}
		a.Send("b", false, p)
		want[0].Write(p)
		b.Send("a", true, p[:min(len(p), 100)])
		want[1].Write(p[:min(len(p), 100)])
	}
	sum[0], sum[1] = want[0].Len(), want[1].Len()
	b.wait(t, sum[0])
	a.wait(t, sum[1])
	if got := bytes.Join(b.got["a"], nil); !bytes.Equal(got, want[0].Bytes()) {
		t.Errorf("b has got %d bytes, and not what was sent", len(got))
	}
	if got := bytes.Join(a.got["b"], nil); !bytes.Equal(got, want[1].Bytes()) {
		t.Errorf("a has got %d bytes, and not what was sent", len(got))
	}
}

func (t *Transport) out(lane wire.Lane, node string) *out {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outs[outKey{node, lane}]
}

func (o *out) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue)
}

// TestUrgent: an urgent message waits for no others.
func TestUrgent(t *testing.T) {
	a, b := two(t)
	a.Send("b", true, []byte("first"))
	b.wait(t, 5)
	a.Send("b", false, make([]byte, QueueBulk))
	a.Send("b", true, []byte("urgent"))
	b.wait(t, QueueBulk+11)
	b.box.mu.Lock()
	defer b.box.mu.Unlock()
	for i, p := range b.got["a"] {
		if string(p) == "urgent" {
			return
		} else if len(p) == QueueBulk {
			t.Fatalf("8 MiB, frame %d, came before the urgent message", i)
		}
	}
}

// TestBounds: what has no room is lost, and no frame is larger than a peer takes.
func TestBounds(t *testing.T) {
	a, b := two(t)
	a.Send("b", true, make([]byte, QueueUrgent+1))
	a.Send("b", false, make([]byte, QueueBulk+1))
	a.Send("nobody", false, []byte("x"))
	a.Send("a", false, []byte("to itself"))
	a.Send("b", false, []byte("y"))
	b.wait(t, 1)
	time.Sleep(50 * time.Millisecond)
	b.box.mu.Lock()
	defer b.box.mu.Unlock()
	if b.bytes != 1 {
		t.Errorf("%d bytes have come", b.bytes)
	}
}

// TestComesBack: a way that has ended is opened again, whichever end it was.
func TestComesBack(t *testing.T) {
	l := &lan{sites: map[string]*site{}}
	a, b := l.open(t, "a", nil), l.open(t, "b", nil)
	a.Send("b", false, []byte("1"))
	b.wait(t, 1)
	b.end(t)
	a.Send("b", false, []byte("lost"))
	time.Sleep(100 * time.Millisecond)
	b = l.open(t, "b", nil)
	defer b.end(t)
	defer a.end(t)
	limit := time.Now().Add(20 * time.Second)
	for time.Now().Before(limit) {
		a.Send("b", false, []byte("2"))
		time.Sleep(10 * time.Millisecond)
		b.box.mu.Lock()
		n := b.bytes
		b.box.mu.Unlock()
		if n > 0 {
			return
		}
	}
	t.Error("nothing comes after b was started again")
}

// TestStrangers: who does not know the secret, is of another cluster, or takes a node for
// another one, is refused.
func TestStrangers(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"secret":  func(c *Config) { c.Secret = []byte("another") },
		"cluster": func(c *Config) { c.Cluster[0]++ },
	} {
		t.Run(name, func(t *testing.T) {
			l := &lan{sites: map[string]*site{}}
			a, b := l.open(t, "a", change), l.open(t, "b", nil)
			defer b.end(t)
			defer a.end(t)
			a.Send("b", false, []byte("x"))
			b.Send("a", false, []byte("x"))
			time.Sleep(200 * time.Millisecond)
			if a.bytes+b.bytes != 0 {
				t.Error("they talk")
			}
		})
	}
	t.Run("a node that is none of the map's", func(t *testing.T) {
		l := &lan{sites: map[string]*site{}}
		a := l.open(t, "a", nil)
		b := l.open(t, "b", func(c *Config) { c.Knows = func(node string) bool { return node == "c" } })
		c := l.open(t, "c", nil)
		defer c.end(t)
		defer b.end(t)
		defer a.end(t)
		a.Send("b", false, []byte("xx"))
		c.Send("b", false, []byte("y"))
		b.wait(t, 1)
		time.Sleep(200 * time.Millisecond)
		if b.bytes != 1 {
			t.Errorf("b has taken %d bytes", b.bytes)
		}
	})
	t.Run("name", func(t *testing.T) {
		l := &lan{sites: map[string]*site{}}
		a, b := l.open(t, "a", nil), l.open(t, "b", nil)
		defer b.end(t)
		defer a.end(t)
		l.mu.Lock()
		l.sites["c"] = b // a takes b for c
		l.mu.Unlock()
		a.Send("c", false, []byte("x"))
		time.Sleep(200 * time.Millisecond)
		if b.bytes != 0 {
			t.Error("b takes what is for c")
		}
	})
}

// TestHostile: whatever a node that has the secret sends, its way ends, and nothing else does.
func TestHostile(t *testing.T) {
	l := &lan{sites: map[string]*site{}}
	a, b, evil := l.open(t, "a", nil), l.open(t, "b", nil), l.open(t, "evil", nil)
	defer b.end(t)
	defer a.end(t)
	defer evil.end(t)
	a.Send("b", false, []byte("x"))
	b.wait(t, 1)
	for _, lane := range []wire.Lane{wire.LaneUrgent, wire.LaneBulk, wire.LaneState, wire.LaneAsk} {
		for _, m := range []message{
			{kind: kindHello}, {kind: kindWelcome, value: 1}, {kind: kindCredit, value: 1}, {kind: kindTaken}, {kind: kindEnd},
			{kind: kindData, value: 1, last: true}, {kind: kindPiece, value: 1}, {kind: kindOffer, value: pieceBytes},
			{kind: kindOffer, value: 1}, {kind: kindOffer, value: pieceBytes, body: make([]byte, 500)}, {kind: 0}, {kind: 99},
		} {
			if lane == wire.LaneAsk && m.kind == kindCredit {
				continue // TestHostileAskers
			}
			e, _, err := evil.dial(context.Background(), outKey{"b", lane})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.say(context.Background(), m); err != nil {
				t.Fatal(err)
			}
			select {
			case <-e.qp.Done():
			case <-time.After(teeth.Patience(8 * time.Second)):
				t.Errorf("%v: the way goes on after %+v", lane, m)
			}
			e.close()
		}
	}
	// A frame without an end.
	e, credits, err := evil.dial(context.Background(), outKey{"b", wire.LaneBulk})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n <= MaxFrame+1<<20; n += 60 << 10 {
		if credits == 0 {
			m, slot, err := e.hear(context.Background())
			if err != nil {
				break
			}
			credits += int(m.value)
			e.recv(slot)
		}
		if e.say(context.Background(), message{kind: kindData, body: make([]byte, 60<<10)}) != nil {
			break
		}
		credits--
	}
	select {
	case <-e.qp.Done():
	case <-time.After(teeth.Patience(8 * time.Second)):
		t.Error("a frame without an end is taken")
	}
	e.close()
	b.box.mu.Lock()
	before := b.bytes
	b.box.mu.Unlock()
	for range 300 {
		a.Send("b", false, []byte("y"))
		time.Sleep(10 * time.Millisecond)
		b.box.mu.Lock()
		n := b.bytes
		b.box.mu.Unlock()
		if n > before {
			return
		}
	}
	t.Error("nothing comes any more")
}

// TestRefusedFrame: an endpoint that refuses what a node sends ends the way.
func TestRefusedFrame(t *testing.T) {
	a, b := two(t)
	b.box.mu.Lock()
	b.refuse = consensus.ErrMessage
	b.box.mu.Unlock()
	e, _, err := a.dial(context.Background(), outKey{"b", wire.LaneBulk})
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	if err := e.say(context.Background(), message{kind: kindData, last: true, body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.qp.Done():
	case <-time.After(teeth.Patience(8 * time.Second)):
		t.Error("the way goes on")
	}
}

var snapHead = consensus.SnapshotHead{
	Group: 7, From: 1, To: 2, Term: 5,
	State: consensus.State{Applied: 99, Term: 4, Config: consensus.Config{Index: 3,
		Voters:   []consensus.Member{{ID: 1, Node: "a"}, {ID: 2, Node: "b"}},
		Learners: []consensus.Member{{ID: 9, Node: "some-other-node"}}}},
}

// TestSnapshot: a snapshot of any size arrives as it is, and its outcome comes back.
func TestSnapshot(t *testing.T) {
	a, b := two(t)
	for _, size := range []int{0, 1, pieceBytes - 1, pieceBytes, pieceBytes + 1, 5*pieceBytes + 77, 20 << 20} {
		data := make([]byte, size)
		rng := rand.NewChaCha8([32]byte{byte(size)})
		rng.Read(data)
		var sum [32]byte
		var head consensus.SnapshotHead
		b.box.receive = func(_ context.Context, h consensus.SnapshotHead, r io.Reader) error {
			all, err := io.ReadAll(r)
			sum, head = sha256.Sum256(all), h
			return err
		}
		if err := a.Snapshot(context.Background(), "b", snapHead, bytes.NewReader(data)); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if sum != sha256.Sum256(data) {
			t.Errorf("%d bytes: others have come", size)
		}
		if fmt.Sprint(head) != fmt.Sprint(snapHead) {
			t.Errorf("the head is %+v", head)
		}
	}
	for _, want := range []error{consensus.ErrBusy, consensus.ErrNotTaken, consensus.ErrNoGroup, consensus.ErrMessage} {
		b.box.receive = func(context.Context, consensus.SnapshotHead, io.Reader) error { return fmt.Errorf("why: %w", want) }
		if err := a.Snapshot(context.Background(), "b", snapHead, bytes.NewReader(make([]byte, 1<<20))); !errors.Is(err, want) {
			t.Errorf("%v came back as %v", want, err)
		}
	}
	b.box.receive = func(context.Context, consensus.SnapshotHead, io.Reader) error { return errors.New("the disk\nis full") }
	if err := a.Snapshot(context.Background(), "b", snapHead, bytes.NewReader(nil)); err == nil || !strings.Contains(err.Error(), "the disk?is full") {
		t.Errorf("an error of the other node: %v", err)
	}
	if err := a.Snapshot(context.Background(), "nobody", snapHead, bytes.NewReader(nil)); err == nil {
		t.Error("it went to nobody")
	}
	broken := errors.New("broken")
	got := make(chan error, 1)
	b.box.receive = func(_ context.Context, _ consensus.SnapshotHead, r io.Reader) error {
		_, err := io.ReadAll(r)
		got <- err
		return err
	}
	if err := a.Snapshot(context.Background(), "b", snapHead, io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("data that cannot be read: %v", err)
	}
	if err := <-got; err == nil {
		t.Error("the receiver takes half of it for all")
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestSnapshotsSideBySide: a node sends the snapshots of several groups at once, and each arrives; of the ways that it does not end,
// the oldest is taken for dead when there are too many.
func TestSnapshotsSideBySide(t *testing.T) {
	a, b := two(t)
	const most = 2 * driver.MaxSending // those of the last ones that are not known to have ended, and new ones
	entered, goOn := make(chan struct{}, most+1), make(chan struct{})
	b.box.receive = func(ctx context.Context, h consensus.SnapshotHead, r io.Reader) error {
		entered <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
			return ctx.Err()
		}
		data, err := io.ReadAll(r)
		if err == nil && len(data) != int(h.Group)<<18 {
			err = fmt.Errorf("group %d has %d bytes", h.Group, len(data))
		}
		return err
	}
	send := func(i int) error {
		head := snapHead
		head.Group = consensus.GroupID(i)
		return a.Snapshot(t.Context(), "b", head, bytes.NewReader(make([]byte, i<<18)))
	}
	enter := func() {
		t.Helper()
		select {
		case <-entered:
		case <-time.After(teeth.Patience(20 * time.Second)):
			t.Fatal("it is not received")
		}
	}
	var all sync.WaitGroup
	for i := range most {
		all.Go(func() {
			if err := send(1 + i); err != nil {
				t.Errorf("beside others: %v", err)
			}
		})
		enter()
	}
	close(goOn)
	all.Wait()

	goOn = make(chan struct{})
	got := make([]chan error, most+1)
	for i := range got {
		got[i] = make(chan error, 1)
		go func() { got[i] <- send(1 + i) }()
		enter()
	}
	select {
	case err := <-got[0]:
		if err == nil {
			t.Error("it ends well")
		}
	case <-time.After(teeth.Patience(20 * time.Second)):
		t.Error("the oldest of too many goes on")
	}
	close(goOn)
	for _, c := range got[1:] {
		if err := <-c; err != nil {
			t.Errorf("one that is not the oldest: %v", err)
		}
	}
}

// TestSnapshotEnds: the sender gives up when its context does, and both when a transport is
// closed.
func TestSnapshotEnds(t *testing.T) {
	a, b := two(t)
	entered := make(chan struct{}, 2)
	b.box.receive = func(ctx context.Context, _ consensus.SnapshotHead, r io.Reader) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-entered; cancel() }()
	if err := a.Snapshot(ctx, "b", snapHead, bytes.NewReader(make([]byte, 4<<20))); err == nil {
		t.Error("it ends well")
	}
	got := make(chan error, 1)
	go func() { got <- a.Snapshot(context.Background(), "b", snapHead, bytes.NewReader(make([]byte, 4<<20))) }()
	<-entered
	a.Transport.Close()
	if err := <-got; err == nil {
		t.Error("it ends well")
	}
	if err := a.Snapshot(context.Background(), "b", snapHead, bytes.NewReader(nil)); !errors.Is(err, consensus.ErrClosed) {
		t.Errorf("behind the end: %v", err)
	}
}

// FuzzParseOffer: an offer is refused, or told again as the same.
func FuzzParseOffer(f *testing.F) {
	o := offer{remote: rdma.RemoteAddr{Addr: 1, RKey: 2}, pieces: pieces, head: snapHead}
	f.Add(o.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseOffer(b)
		if err != nil {
			if !errors.Is(err, errProtocol) {
				t.Fatal(err)
			}
			return
		}
		if again := o.append(nil); !bytes.Equal(again, b) {
			t.Fatalf("% x is told as % x", b, again)
		}
	})
}

// knock opens a way to a site as the bytes say, and returns this end of it.
func knock(t testing.TB, from *site, to string, lane wire.Lane, connect []byte) (e *end, accept []byte) {
	t.Helper()
	// A node that sets up as many ways as it may rejects the next one: those of ends that have just been closed, say.
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		e = must(from.newEnd(from.dev, dials[lane], 0))
		info, err := e.qp.Connect(context.Background(), from.c.Routes(to)[0].Addr, rdma.ConnParams{PrivateData: connect})
		if err == nil {
			return e, wire.Unpad(info.PrivateData, wire.NodeAcceptSize)
		}
		e.close()
		if !errors.Is(err, rdma.ErrRejected) || time.Since(began) > SetupTimeout {
			t.Fatal(err)
		}
	}
}

// TestReplay: who has heard how a node opened a way cannot open one with it.
func TestReplay(t *testing.T) {
	a, b := two(t)
	connect := wire.AppendNodeConnect(nil, []byte("secret"), wire.NodeConnect{Lane: wire.LaneBulk})
	heard := wire.AppendNodeAccept(nil, []byte("secret"), connect, 1, wire.Nonce{1})
	e, _ := knock(t, a, "b", wire.LaneBulk, connect)
	defer e.close()
	hello := wire.AppendNodeHello(nil, []byte("secret"), connect, heard, wire.NodeHello{Cluster: [16]byte{1}, From: []byte("evil"), To: []byte("b"), Openings: first})
	if err := e.say(context.Background(), message{kind: kindHello, body: hello}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-e.qp.Done():
	case <-time.After(teeth.Patience(8 * time.Second)):
		t.Error("a hello for another acceptance is taken")
	}
	if b.bytes != 0 {
		t.Error("b was told something")
	}
}

// TestCopies: copies of one request, which anybody on the way can send, take one place and not
// all: a node is let in beside them.
func TestCopies(t *testing.T) {
	a, b := two(t)
	connect := wire.AppendNodeConnect(nil, []byte("secret"), wire.NodeConnect{Lane: wire.LaneBulk})
	first, _ := knock(t, a, "b", wire.LaneBulk, connect)
	defer first.close()
	e := must(a.newEnd(a.dev, dials[wire.LaneBulk], 0))
	defer e.close()
	if _, err := e.qp.Connect(context.Background(), a.c.Routes("b")[0].Addr, rdma.ConnParams{PrivateData: connect}); !errors.Is(err, rdma.ErrRejected) {
		t.Errorf("a copy is set up: %v", err)
	}
	a.Send("b", false, []byte("x"))
	b.wait(t, 1)
}

// TestSilence: who says nothing, or nothing that is a hello, has a way for SetupTimeout.
func TestSilence(t *testing.T) {
	a, _ := two(t)
	connect := wire.AppendNodeConnect(nil, []byte("secret"), wire.NodeConnect{Lane: wire.LaneUrgent})
	e, _ := knock(t, a, "b", wire.LaneUrgent, connect)
	defer e.close()
	select {
	case <-e.qp.Done():
	case <-time.After(SetupTimeout + teeth.Patience(8*time.Second)):
		t.Error("a way without a hello goes on")
	}
}

// TestStarved: a way whose other end gives no credits is ended, and opened again.
func TestStarved(t *testing.T) {
	l := &lan{sites: map[string]*site{}}
	a := l.open(t, "a", func(c *Config) { c.Stall = 50 * time.Millisecond })
	defer a.end(t)
	dev := must(iwarp.New(iwarp.Options{}).Open(context.Background(), ""))
	ln := must(dev.Listen(context.Background(), "127.0.0.1:0"))
	miser := must(New(Config{Name: "b", Cluster: [16]byte{1}, Secret: []byte("secret"), Openings: first, Endpoint: newBox(), Routes: func(string) []Route { return nil }}))
	l.sites["b"] = &site{ln: ln, name: "b"}
	ways := make(chan struct{}, 8)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			req, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			if _, e, err := miser.welcome(dev, req); err == nil {
				ways <- struct{}{}
				defer e.close() // it takes what comes, and says no more
			}
		}
	}()
	limit := time.After(teeth.Patience(20 * time.Second))
	for n := 0; n < 2; {
		a.Send("b", false, make([]byte, 1<<20))
		select {
		case <-ways:
			n++
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			t.Fatal("the way is not opened again")
		}
	}
	stop()
	ln.Close()
	<-done
	if err := errors.Join(miser.Close(), dev.Close()); err != nil {
		t.Error(err)
	}
}
