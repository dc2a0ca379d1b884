package ether

import (
	"encoding/binary"
	"os"
	"testing"
	"time"
)

// packet is a frame from one guest to another with IPv4 and the ports of a TCP
// or UDP header.
func packet(from, to address, protocol byte, src, dst uint16, offset uint16) []byte {
	b := append(append([]byte{}, to[:]...), from[:]...)
	b = append(b, 0x08, 0x00)
	ip := make([]byte, 24) // with options
	ip[0], ip[9] = 0x46, protocol
	binary.BigEndian.PutUint16(ip[6:], offset)
	b = append(b, ip...)
	b = binary.BigEndian.AppendUint16(b, src)
	return binary.BigEndian.AppendUint16(b, dst)
}

func TestConcerns(t *testing.T) {
	const tcp, udp, icmp = 6, 17, 1
	ports := []uint16{7946, 4791}
	for _, c := range []struct {
		name  string
		frame []byte
		want  bool
	}{
		{"UDP to it", packet(mac(1), mac(2), udp, 1, 7946, 0), true},
		{"TCP from it", packet(mac(1), mac(2), tcp, 4791, 1, 0), true},
		{"another port", packet(mac(1), mac(2), tcp, 7400, 7401, 0), false},
		{"ICMP", packet(mac(1), mac(2), icmp, 7946, 7946, 0), false},
		{"a later fragment", packet(mac(1), mac(2), udp, 7946, 7946, 100), false},
		{"the first fragment", packet(mac(1), mac(2), udp, 7946, 1, 0x2000), true},
		{"cut short", packet(mac(1), mac(2), udp, 7946, 1, 0)[:40], false},
		{"no IP", frame(mac(1), mac(2), "a text of more than twenty bytes in a frame"), false},
		{"nothing", nil, false},
	} {
		if got := concerns(c.frame, ports); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestCutPorts: some TCP and UDP ports alone are cut, in one direction.
func TestCutPorts(t *testing.T) {
	b := newBench(t, 3)
	b.meet(3)
	b.CutOneWay(1, 2, 7946)
	for _, f := range [][]byte{packet(mac(1), mac(2), 17, 7946, 7946, 0), packet(mac(1), mac(2), 6, 7400, 50000, 0)} {
		if _, err := b.Port(1).Write(f); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, MaxFrame)
	if err := b.Port(2).SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	n, err := b.Port(2).Read(buf)
	if err != nil || concerns(buf[:n], []uint16{7946}) || !concerns(buf[:n], []uint16{7400}) {
		t.Errorf("port 2 hears %x, %v", buf[:n], err)
	}
	b.say(1, mac(2), "what is no IP passes")
	b.hears(2, "what is no IP passes")
	if _, err := b.Port(2).Write(packet(mac(2), mac(1), 17, 7946, 7946, 0)); err != nil {
		t.Fatal(err)
	}
	if err := b.Port(1).SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Port(1).Read(buf); err != nil || !concerns(buf[:n], []uint16{7946}) {
		t.Errorf("port 1 hears %x, %v", buf[:n], err)
	}
}

// TestDelay: frames come late, in order, and all of them.
func TestDelay(t *testing.T) {
	const delay = 50 * time.Millisecond
	b := newBench(t, 2)
	b.meet(2)
	b.Delay(1, 2, delay)
	start := time.Now()
	for i := range 20 {
		b.say(1, mac(2), string(rune('a'+i)))
	}
	for i := range 20 {
		b.hears(2, string(rune('a'+i)))
	}
	if took := time.Since(start); took < delay {
		t.Errorf("they came after %v", took)
	}
	b.Heal()
	b.say(1, mac(2), "at once")
	b.hears(2, "at once")
	b.Delay(1, 2, time.Hour)
	b.say(1, mac(2), "lost with the switch")
	if err := b.Port(2).SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Port(2).Read(make([]byte, MaxFrame)); !os.IsTimeout(err) {
		t.Errorf("it comes: %v", err)
	}
}
