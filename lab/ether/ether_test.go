package ether

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// mac is the address of the guest at a port.
func mac(n int) address { return address{0x52, 0x54, 0, 0x77, 0, byte(n)} }

var broadcast = address{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func frame(from, to address, text string) []byte {
	b := append(append([]byte{}, to[:]...), from[:]...)
	return append(append(b, 0x88, 0xb5), text...) // an EtherType for experiments
}

// A bench is a switch with the guests' ends of its cables.
type bench struct {
	*Switch
	t *testing.T
}

func newBench(t *testing.T, n int) bench {
	t.Helper()
	s, err := New(n, 7)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return bench{s, t}
}

// say sends a frame from the guest at a port.
func (b bench) say(from int, to address, text string) {
	b.t.Helper()
	if _, err := b.Port(from).Write(frame(mac(from), to, text)); err != nil {
		b.t.Fatal(err)
	}
}

// hears waits for a frame at a port and checks its text.
func (b bench) hears(at int, text string) {
	b.t.Helper()
	buf := make([]byte, MaxFrame+1)
	if err := b.Port(at).SetReadDeadline(time.Now().Add(patience)); err != nil {
		b.t.Fatal(err)
	}
	n, err := b.Port(at).Read(buf)
	if err != nil || !bytes.HasSuffix(buf[:n], []byte(text)) || n != 14+len(text) {
		b.t.Fatalf("port %d hears %q (%v), and not %q", at, buf[:n], err, text)
	}
}

// silent checks that nothing has come to a port. A switch that passes frames
// in order has passed, or dropped, all that was sent to a port before a frame
// that a third one has heard; callers make sure of that.
func (b bench) silent(at int) {
	b.t.Helper()
	buf := make([]byte, MaxFrame+1)
	if err := b.Port(at).SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		b.t.Fatal(err)
	}
	if n, err := b.Port(at).Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		b.t.Fatalf("port %d hears %q (%v), and should hear nothing", at, buf[:n], err)
	}
}

// meet lets every guest be known to the switch.
func (b bench) meet(n int) {
	b.t.Helper()
	for from := 1; from <= n; from++ {
		b.say(from, broadcast, "hello")
		for at := 1; at <= n; at++ {
			if at != from {
				b.hears(at, "hello")
			}
		}
	}
}

func TestLearns(t *testing.T) {
	b := newBench(t, 3)
	b.say(1, mac(2), "where are you") // not known: to all
	b.hears(2, "where are you")
	b.hears(3, "where are you")
	b.say(2, mac(1), "here") // known now
	b.hears(1, "here")
	b.silent(3)
	b.say(1, mac(2), "good")
	b.hears(2, "good")
	b.silent(3)
	b.silent(1)
}

func TestCutAndHeal(t *testing.T) {
	b := newBench(t, 3)
	b.meet(3)
	b.Cut(1, 2)
	b.say(1, mac(2), "lost")
	b.say(1, mac(3), "after it")
	b.hears(3, "after it")
	b.silent(2)
	b.say(2, mac(1), "lost")
	b.say(2, mac(3), "after it")
	b.hears(3, "after it")
	b.silent(1)
	if c := b.Counters(2); c.Dropped != 1 {
		t.Errorf("counters of port 2: %+v", c)
	}
	b.Heal()
	b.say(1, mac(2), "found")
	b.hears(2, "found")
	b.say(2, mac(1), "found")
	b.hears(1, "found")
}

func TestCutOneWay(t *testing.T) {
	b := newBench(t, 3)
	b.meet(3)
	b.CutOneWay(1, 2)
	b.say(1, mac(2), "lost")
	b.say(1, mac(3), "after it")
	b.hears(3, "after it")
	b.silent(2)
	b.say(2, mac(1), "passes")
	b.hears(1, "passes")
}

func TestIsolate(t *testing.T) {
	b := newBench(t, 3)
	b.meet(3)
	b.Isolate(3)
	b.say(1, broadcast, "to all")
	b.hears(2, "to all")
	b.silent(3)
	b.say(3, broadcast, "to all")
	b.silent(1)
	b.silent(2)
}

// TestLose: of many frames about the wanted share is lost, and the same ones
// with the same seed.
func TestLose(t *testing.T) {
	const frames, probability = 2000, 0.25
	var lost [2]uint64
	for i := range lost {
		b := newBench(t, 2)
		b.meet(2)
		b.Lose(1, 2, probability)
		for range frames {
			b.say(1, mac(2), "perhaps")
			// One at a time: a socket drops what its buffer does not hold.
			c := b.Counters(2)
			for end := time.Now().Add(patience); c.Out+c.Dropped == lost[i]; c = b.Counters(2) {
				if time.Now().After(end) {
					t.Fatal("the switch has stopped")
				}
			}
			lost[i] = c.Out + c.Dropped
		}
		lost[i] = b.Counters(2).Dropped
		// 13 standard deviations: fails once in more runs than there will be.
		if want := frames * probability; float64(lost[i]) < want-250 || float64(lost[i]) > want+250 {
			t.Errorf("%d of %d frames were lost, wanted about %.0f", lost[i], frames, want)
		}
		b.Lose(1, 2, 1)
		b.say(1, mac(2), "never")
		b.silentAfterDrop(lost[i] + 1)
		b.Close()
	}
	if lost[0] != lost[1] {
		t.Errorf("with the same seed %d and %d frames were lost", lost[0], lost[1])
	}
}

// silentAfterDrop waits until port 2 has lost n frames.
func (b bench) silentAfterDrop(n uint64) {
	b.t.Helper()
	for end := time.Now().Add(patience); b.Counters(2).Dropped != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%d frames dropped, not %d", b.Counters(2).Dropped, n)
		}
	}
}

// TestBounds: what is no frame is dropped, and what the switch learns has an
// end.
func TestBounds(t *testing.T) {
	b := newBench(t, 2)
	b.meet(2)
	for _, junk := range [][]byte{{}, make([]byte, 13), make([]byte, MaxFrame+1)} {
		if _, err := b.Port(1).Write(junk); err != nil {
			t.Fatal(err)
		}
	}
	b.say(1, mac(2), "a frame")
	b.hears(2, "a frame")
	for i := range maxAddresses + 10 {
		b.route(1, frame(address{0x52, 0, 0, 1, byte(i >> 8), byte(i)}, mac(2), ""), nil)
	}
	b.mu.Lock()
	n := len(b.table)
	b.mu.Unlock()
	if n > maxAddresses {
		t.Errorf("the switch knows %d addresses", n)
	}
	b.route(1, frame(broadcast, mac(2), ""), nil) // a source that is no address of anyone
	if to := b.route(2, frame(mac(2), broadcast, ""), nil); len(to) != 1 || to[0] != 1 {
		t.Errorf("broadcast goes to %v", to)
	}
}

// TestGuestComesLate: a cable whose other end was closed for a while.
func TestGuestComesLate(t *testing.T) {
	s, err := New(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := bench{s, t}
	defer b.Close()
	b.meet(2)
	at, far := b.Port(2).LocalAddr().(*net.UDPAddr), b.Port(2).RemoteAddr().(*net.UDPAddr)
	b.Port(2).Close()
	for range 20 {
		b.say(1, mac(2), "nobody there")
	}
	for end := time.Now().Add(patience); b.Counters(1).In < 21; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("counters of port 1: %+v", b.Counters(1))
		}
	}
	again, err := net.DialUDP("udp4", at, far)
	if err != nil {
		t.Fatal(err)
	}
	b.ports[1].end = again
	b.say(1, mac(2), "back")
	b.hears(2, "back")
	b.say(2, mac(1), "back")
	b.hears(1, "back")
}

// TestStranger: another program's datagrams do not come in.
func TestStranger(t *testing.T) {
	b := newBench(t, 2)
	b.meet(2)
	c, err := net.DialUDP("udp4", nil, b.Port(1).RemoteAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = c.Write(frame(mac(9), broadcast, "let me in")) // may be refused at once
	b.say(1, mac(2), "a friend")
	b.hears(2, "a friend")
	b.silent(2)
}

func TestWrongPorts(t *testing.T) {
	b := newBench(t, 2)
	for _, p := range [][2]int{{0, 1}, {1, 3}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("ports %v are cut", p)
				}
			}()
			b.Cut(p[0], p[1])
		}()
	}
}
