package keeper

import (
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

// A datagram is what a hostile end sends.
type datagram struct {
	bytes string
	fds   func(t *testing.T) []int
}

// dial is a connection that says what it likes.
func dial(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// say sends a datagram; the other end may have closed by then.
func (d datagram) say(t *testing.T, c *net.UnixConn) {
	t.Helper()
	var fds []int
	if d.fds != nil {
		fds = d.fds(t)
		defer func() {
			for _, fd := range fds {
				closeFD(fd)
			}
		}()
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, _ = c.WriteMsgUnix([]byte(d.bytes), oob, nil)
}

// Descriptors of every kind.
func good(n int) func(t *testing.T) []int {
	return func(t *testing.T) (fds []int) {
		for range n {
			fds = append(fds, memoryOf(t, "hostile"))
		}
		return fds
	}
}

func badMemory(t *testing.T) []int { return []int{unsealed(t, "it can shrink")} }

func regularFile(t *testing.T) []int {
	fd, err := unix.Open(filepath.Join(t.TempDir(), "f"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return []int{fd}
}

func pipe(t *testing.T) []int {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	closeFD(p[1])
	return p[:1]
}

func helloOf(version byte, keep uint64) string {
	return string(binary.LittleEndian.AppendUint64([]byte{'H', version}, keep))
}

// TestHostileNode: whatever a process says to a keeper, it is sent away, nothing of it stays, and the next node finds what there was.
func TestHostileNode(t *testing.T) {
	hello := helloOf(protocol, uint64(time.Minute))
	for _, c := range []struct {
		name string
		says []datagram
	}{
		{"nothing", []datagram{{"", nil}}},
		{"nothing, with a descriptor", []datagram{{"", good(1)}}},
		{"no hello", []datagram{{"Pa", good(1)}}},
		{"a hello with a descriptor", []datagram{{hello, good(1)}}},
		{"another version", []datagram{{helloOf(protocol+1, 1), nil}}},
		{"a short hello", []datagram{{hello[:9], nil}}},
		{"a long hello", []datagram{{hello + "x", nil}}},
		{"too long a time", []datagram{{helloOf(protocol, uint64(MaxKeep)+1), nil}}},
		{"a time beyond all", []datagram{{helloOf(protocol, 1<<63), nil}}},
		{"hello twice", []datagram{{hello, nil}, {hello, nil}}},
		{"no such kind", []datagram{{hello, nil}, {"Z", nil}}},
		{"a keeper's word", []datagram{{hello, nil}, {"K", nil}}},
		{"a keeper's region", []datagram{{hello, nil}, {"Fa", good(1)}}},
		{"busy", []datagram{{hello, nil}, {"B1", nil}}},
		{"put of nothing", []datagram{{hello, nil}, {"Pa", nil}}},
		{"put of two", []datagram{{hello, nil}, {"Pa", good(2)}}},
		{"put of ten", []datagram{{hello, nil}, {"Pa", good(10)}}},
		{"put without a name", []datagram{{hello, nil}, {"P", good(1)}}},
		{"put under a name of too many bytes", []datagram{{hello, nil}, {"P" + strings.Repeat("n", maxName+1), good(1)}}},
		{"put under a name with a line in it", []datagram{{hello, nil}, {"Pa\nb", good(1)}}},
		{"put in too many bytes", []datagram{{hello, nil}, {"P" + strings.Repeat("n", 4*maxMessage), good(1)}}},
		{"put of memory that can shrink", []datagram{{hello, nil}, {"Pa", badMemory}}},
		{"put of a file", []datagram{{hello, nil}, {"Pa", regularFile}}},
		{"put of a pipe", []datagram{{hello, nil}, {"Pa", pipe}}},
		{"drop with a descriptor", []datagram{{hello, nil}, {"Da", good(1)}}},
		{"drop without a name", []datagram{{hello, nil}, {"D", nil}}},
	} {
		ended := t.Run(c.name, func(t *testing.T) {
			noneLeft(t)
			path := here(t, os.Geteuid(), func(n aNode) {
				n.keep(t, "a", "one")
				n.keep(t, "b", "two")
			})
			// The one that has set it up may be there for a moment still.
			n, _ := meet(t, path)
			_ = n.Close()
			conn := dialIn(t, path, hello == c.says[0].bytes && len(c.says) > 1)
			for i, d := range c.says {
				if i > 0 || !conn.greeted {
					d.say(t, conn.UnixConn)
				}
			}
			conn.mustEnd(t)
			n, left := meet(t, path)
			defer n.Close()
			if want := map[string]string{"a": "one", "b": "two"}; !maps.Equal(left, want) {
				t.Errorf("left: %q, want %q", left, want)
			}
		})
		if !ended {
			return // each that is not sent away is waited for, and one is enough
		}
	}
}

// TestOneConnection: a keeper has one node at a time, and tells the next which process that is. (TestOneNode has a keeper that is a process.)
func TestOneConnection(t *testing.T) {
	noneLeft(t)
	path := here(t, os.Geteuid(), nil)
	n, _ := meet(t, path)
	n.keep(t, "a", "one")
	for range 2 {
		c, left, err := connect(path, time.Minute, os.Geteuid(), time.Now().Add(20*time.Second))
		if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), itoa(os.Getpid())) {
			t.Fatalf("a second node: %v, %d are handed over, client %v", err, len(left), c != nil)
		}
	}
	n.keep(t, "b", "two")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n, left := meet(t, path)
	defer n.Close()
	if want := map[string]string{"a": "one", "b": "two"}; !maps.Equal(left, want) {
		t.Errorf("left: %q, want %q", left, want)
	}
}

// A guest is a hostile connection.
type guest struct {
	*net.UnixConn
	greeted bool
}

// dialIn connects; as a node that was let in if it is to be.
func dialIn(t *testing.T, path string, greet bool) guest {
	t.Helper()
	if !greet {
		return guest{dial(t, path), false}
	}
	var c *net.UnixConn
	await(t, "the keeper lets nobody in", func() bool {
		c = dial(t, path)
		if err := send(c, message{kind: msgHello, keep: time.Minute}, -1, time.Now().Add(20*time.Second)); err != nil {
			t.Fatal(err)
		}
		for {
			m, fd, err := receive(c, time.Now().Add(20*time.Second))
			closeFD(fd)
			switch {
			case err != nil || m.kind == msgBusy:
				c.Close()
				return false
			case m.kind == msgDone:
				return true
			}
		}
	})
	return guest{c, true}
}

// mustEnd waits until the keeper has closed the connection.
func (g guest) mustEnd(t *testing.T) {
	t.Helper()
	defer g.Close()
	for until := time.Now().Add(30 * time.Second); ; {
		_, fd, err := receive(g.UnixConn, until)
		closeFD(fd)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the keeper goes on with it")
		}
		if err != nil {
			return
		}
	}
}

// TestNodeEndsInBetween: a node that ends while it is handed what is kept, or does not take it, leaves all of it to the next one.
func TestNodeEndsInBetween(t *testing.T) {
	noneLeft(t)
	const many = 600 // more than fit into a socket
	path := here(t, os.Geteuid(), func(n aNode) {
		for i := range many {
			n.keep(t, "region-"+itoa(i), "text "+itoa(i))
		}
	})
	for _, takes := range []int{0, 1, 50} {
		n, _ := meet(t, path)
		_ = n.Close()
		await(t, "it is not let in", func() bool {
			c := dial(t, path)
			defer c.Close()
			if err := send(c, message{kind: msgHello, keep: time.Minute}, -1, time.Now().Add(20*time.Second)); err != nil {
				t.Fatal(err)
			}
			for range takes {
				m, fd, err := receive(c, time.Now().Add(20*time.Second))
				closeFD(fd)
				if err != nil || m.kind != msgRegion {
					return false
				}
			}
			return true
		})
	}
	n, left := meet(t, path)
	defer n.Close()
	if len(left) != many || left["region-7"] != "text 7" {
		t.Errorf("%d are left of %d", len(left), many)
	}
}

// TestHostileKeeper: whatever answers in the place of a keeper, a node takes nothing from it, in bounded time.
func TestHostileKeeper(t *testing.T) {
	for _, c := range []struct {
		name string
		says []datagram
		want error // nil: any
	}{
		{"nothing", nil, os.ErrDeadlineExceeded},
		{"a region without memory", []datagram{{"Fa", nil}}, ErrProtocol},
		{"a region of two", []datagram{{"Fa", good(2)}}, ErrProtocol},
		{"a region of a file", []datagram{{"Fb", good(1)}, {"Fa", regularFile}}, ErrProtocol},
		{"a region of a pipe", []datagram{{"Fa", pipe}}, ErrProtocol},
		{"a region of memory that can shrink", []datagram{{"Fa", badMemory}}, ErrProtocol},
		{"a region without a name", []datagram{{"F", good(1)}}, ErrProtocol},
		{"regions without an end", []datagram{{"Fa", good(1)}, {"Fa", good(1)}, {"Fb", good(1)}}, os.ErrDeadlineExceeded},
		{"done with a descriptor", []datagram{{"K", good(1)}}, ErrProtocol},
		{"done and more", []datagram{{"Kx", nil}}, ErrProtocol},
		{"a node's word", []datagram{{"Da", nil}}, ErrProtocol},
		{"a hello", []datagram{{helloOf(protocol, 1), nil}}, ErrProtocol},
		{"busy with a text", []datagram{{"B\x1b[2J", nil}}, ErrProtocol},
		{"busy with a number beyond all", []datagram{{"B99999999999999999999", nil}}, ErrProtocol},
		{"busy with a descriptor", []datagram{{"B1", good(1)}}, ErrProtocol},
		{"busy", []datagram{{"B17", nil}}, ErrBusy},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), socketName)
			ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			done, over := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				conn, err := ln.AcceptUnix()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				for _, d := range c.says {
					d.say(t, conn)
				}
				<-over
			}()
			_, left, err := connect(path, time.Minute, os.Geteuid(), time.Now().Add(time.Second))
			close(over)
			<-done
			if err == nil || left != nil || !errors.Is(err, c.want) {
				t.Errorf("left %v, %v, want %v", left, err, c.want)
			}
		})
	}
}

// TestWaitEnds: the life of a keeper is over when its node has been away for so long, and lets go of what it kept.
func TestWaitEnds(t *testing.T) {
	noneLeft(t)
	path := filepath.Join(t.TempDir(), socketName)
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), ln) }()
	c, _, err := connect(path, 50*time.Millisecond, os.Geteuid(), time.Now().Add(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	n := aNode{Client: c}
	n.keep(t, "a", "one")
	_ = n.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits still")
	}
}

// TestUnaskedAnswers: a keeper that answers what was not asked is given up.
func TestUnaskedAnswers(t *testing.T) {
	noneLeft(t)
	path := filepath.Join(t.TempDir(), socketName)
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ln.SetUnlinkOnClose(false)
	conns := make(chan *net.UnixConn, 1)
	go func() {
		conn, err := ln.AcceptUnix()
		if err != nil {
			t.Error(err)
		}
		for range 3 {
			datagram{"K", nil}.say(t, conn)
		}
		conns <- conn
	}()
	c, _, err := connect(path, time.Minute, os.Geteuid(), time.Now().Add(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	<-c.Gone()
	if err := c.Err(); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it can be found: %v", err)
	}
	_ = c.Close()
	(<-conns).Close()
}

// TestOtherUser: memory goes to processes of the same user alone, and comes from them alone.
func TestOtherUser(t *testing.T) {
	noneLeft(t)
	for _, c := range []struct {
		p   peer
		uid int
		is  bool
	}{{peer{uid: 5}, 5, true}, {peer{uid: 0}, 5, true}, {peer{uid: 6}, 5, false}, {peer{uid: 5}, 0, false}, {peer{uid: 0}, 0, true}} {
		if err := c.p.trusted(c.uid); (err == nil) != c.is {
			t.Errorf("%+v for user %d: %v", c.p, c.uid, err)
		}
	}
	// The addresses are abstract, so that no directory keeps the other user out.
	listenAt := func(name string) *net.UnixListener {
		ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	toNode, toKeeper := "@rdmakv-test-node-"+itoa(os.Getpid()), "@rdmakv-test-keeper-"+itoa(os.Getpid())

	// A node that is a stranger.
	ln := listenAt(toKeeper)
	var c *net.UnixConn
	uid := asOther(t, func() (err error) {
		c, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: toKeeper, Net: "unixpacket"})
		return err
	})
	done := make(chan error, 1)
	go func() { done <- run(t.Context(), ln, uid) }()
	_ = send(c, message{kind: msgHello, keep: time.Minute}, -1, time.Now().Add(time.Second))
	if m, _, err := receive(c, time.Now().Add(20*time.Second)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the keeper says %+v to a stranger, %v", m, err)
	}
	_ = c.Close()
	_ = ln.Close()
	<-done

	// A keeper that is a stranger.
	uid = asOther(t, func() error { ln = listenAt(toNode); return nil })
	defer ln.Close()
	c = dial(t, toNode)
	if _, _, err := greet(c, "", time.Minute, uid, time.Now().Add(20*time.Second)); err == nil || !strings.Contains(err.Error(), "of user") {
		t.Errorf("a node and a keeper that is a stranger: %v", err)
	}
}

// FuzzParse: no datagram ends the process, and what is taken is what would have been sent.
func FuzzParse(f *testing.F) {
	for _, m := range []message{{kind: msgHello, keep: time.Minute}, {kind: msgBusy, pid: 77}, {kind: msgDrop, name: "region-1"}, {kind: msgDone}} {
		f.Add(m.bytes(), false)
	}
	f.Add(message{kind: msgPut, name: "record"}.bytes(), true)
	f.Add(message{kind: msgRegion, name: strings.Repeat("n", maxName)}.bytes(), true)
	f.Fuzz(func(t *testing.T, b []byte, with bool) {
		m, err := parse(b, with)
		if err != nil {
			if !errors.Is(err, ErrProtocol) || m != (message{}) {
				t.Errorf("%+v, %v", m, err)
			}
			return
		}
		if string(m.bytes()) != string(b) {
			t.Errorf("%q is taken for %+v, which is %q", b, m, m.bytes())
		}
		if m.keep < 0 || m.keep > MaxKeep || len(m.name) > maxName || with != (m.kind == msgPut || m.kind == msgRegion) {
			t.Errorf("%+v", m)
		}
	})
}
