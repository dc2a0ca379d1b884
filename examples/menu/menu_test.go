package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/examples/internal/runs"
)

func TestMain(m *testing.M) { runs.Main(m, main) }

// play runs two processes through the whole menu. They meet where the order
// matters, as two people would by talking.
func play(t *testing.T, fabric, host string) {
	server := runs.Start(t, "-fabric", fabric, "-listen", net.JoinHostPort(host, "0"))
	addr := regexp.MustCompile(`process at (\S+)`).FindStringSubmatch(server.Line("waiting for the other process at"))[1]
	client := runs.Start(t, "-fabric", fabric, "-connect", addr)

	client.Type("1\n")
	client.Line(`read "this is the server's memory"`)
	server.Type("set changed by the server\nmeet\n")
	client.Type("meet\n7\nread\n") // one meeting for the change, one below
	server.Type("7\n")
	client.Line(`read "changed by the server"`)

	// A WRITE goes unnoticed, until the server looks. The message sent behind it
	// is what tells that it is there.
	client.Type("2 written by the client\nsend look at your memory\n3 and again\n")
	server.Type("receive\nshow\n4\n")
	server.Line(`received "look at your memory"`)
	server.Line(`our window: "written by the client"`)
	server.Line(`received "and again"`)

	// More messages than receives are posted at a time, one after the other.
	for i := range 2 * slots {
		text := fmt.Sprintf("answer %d", i)
		server.Type("send " + text + "\n")
		client.Type("receive\n")
		client.Line(fmt.Sprintf("received %q", text))
		server.Line(fmt.Sprintf("sent %q", text)) // or it may still be at it when the client quits
	}
	client.Type("show\n9\n")
	client.Line("in state RTS")
	client.Line(`there is no "9"`)
	client.Type("quit\n")
	server.Type("8\n")
	client.Wait(0)
	if out := server.Wait(0); strings.Count(out, "met") < 2 {
		t.Errorf("server: %s", out)
	}
}

func TestOnIWARP(t *testing.T) { play(t, "iwarp", "127.0.0.1") }

func TestOnDevice(t *testing.T) {
	d := runs.NeedDevice(t)
	if d.IWARP {
		t.Skip("an iWARP device is connected by the connection manager only")
	}
	play(t, "verbs", d.Addr)
}

// TestPiped: the menu from a pipe, whose end is quit.
func TestPiped(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	var out bytes.Buffer
	m := menu{ep: fake{}, conn: client, timeout: time.Minute, in: strings.NewReader("set x\n\n  show  \nread"), out: &out}
	if err := m.loop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`our window is now "x"`, "a fake", `read "abc"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
	m.in = strings.NewReader("write " + strings.Repeat("x", windowSize+1) + "\n" + strings.Repeat("y", 1<<17))
	if err := m.loop(t.Context()); err == nil || !strings.Contains(out.String(), "at most 256 fit") {
		t.Errorf("a line of 128 KiB: %v, %s", err, out.String())
	}
}

// fake is an endpoint whose peer has abc in its window.
type fake struct{ endpoint }

func (fake) window() []byte   { return make([]byte, windowSize) }
func (fake) describe() string { return "a fake" }
func (fake) read(_ context.Context, n int) ([]byte, error) {
	return append([]byte("abc"), make([]byte, n-3)...), nil
}

// TestHostileCards: any program that reaches the TCP port may send anything.
func TestHostileCards(t *testing.T) {
	good := card{lid: 7, qpn: 0x123456, psn: 0xabcdef, gid: [16]byte{15: 9}, addr: 0x7f0000001000, rkey: 0x55, size: windowSize, mtu: 3, port: 99}
	if got, err := parseCard(good.bytes()); err != nil || got != good {
		t.Fatalf("%v, %v", got, err)
	}
	for name, spoil := range map[string]func(b []byte){
		"magic":        func(b []byte) { b[offMagic] ^= 1 },
		"version":      func(b []byte) { b[offVersion+1]++ },
		"QPN":          func(b []byte) { b[offQPN] = 1 },
		"PSN":          func(b []byte) { b[offPSN] = 1 },
		"size 0":       func(b []byte) { binary.BigEndian.PutUint32(b[offSize:], 0) },
		"size 4 GiB":   func(b []byte) { binary.BigEndian.PutUint32(b[offSize:], 1<<32-1) },
		"address":      func(b []byte) { binary.BigEndian.PutUint64(b[offAddr:], 1<<64-8) },
		"MTU 0":        func(b []byte) { b[offMTU] = 0 },
		"MTU 6":        func(b []byte) { b[offMTU] = 6 },
		"MTU 255":      func(b []byte) { b[offMTU] = 255 },
		"another talk": func(b []byte) { copy(b, "GET / HTTP/1.1\r\n") },
	} {
		b := good.bytes()
		spoil(b)
		if c, err := parseCard(b); err == nil {
			t.Errorf("%s: accepted %v", name, c)
		}
	}
	if _, err := parseCard(good.bytes()[:cardLen-1]); err == nil {
		t.Error("a short card was accepted")
	}
}

// TestExchangeEnds: a peer that is silent, hangs up, or talks nonsense ends the
// exchange with an error.
func TestExchangeEnds(t *testing.T) {
	for name, peer := range map[string]func(c net.Conn){
		"silent":   func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"hangs up": func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, cardLen)); _ = c.Close() },
		"nonsense": func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, cardLen))
			_, _ = c.Write(bytes.Repeat([]byte("x"), cardLen))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			defer b.Close()
			go peer(b)
			if c, err := exchange(a, card{mtu: 1, size: windowSize}, 200*time.Millisecond); err == nil {
				t.Errorf("got %v", c)
			}
		})
	}
}

func FuzzParseCard(f *testing.F) {
	f.Add(card{qpn: 1, mtu: 5, size: windowSize}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCard(b)
		if err != nil {
			return
		}
		if c.qpn > max24 || c.psn > max24 || c.size != windowSize || c.mtu < 1 || c.mtu > 5 {
			t.Errorf("accepted %+v", c)
		}
		if again, err := parseCard(c.bytes()); err != nil || again != c {
			t.Errorf("%+v became %+v, %v", c, again, err)
		}
	})
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-listen", "a:1", "-connect", "b:1"}, {"-listen", "127.0.0.1:0", "more"},
		{"-listen", "127.0.0.1:0", "-fabric", "wire"}, {"-listen", "127.0.0.1:0", "-port", "0"}, {"-listen", "127.0.0.1:0", "-port", "256"},
	} {
		if err := run(t.Context(), args, strings.NewReader(""), &bytes.Buffer{}); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
