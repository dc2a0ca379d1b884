package main

import (
	"bytes"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/examples/internal/runs"
)

func TestMain(m *testing.M) { runs.Main(m, main) }

// portOf is the port of a server that was started with -p 0.
func portOf(t *testing.T, server *runs.Proc) string {
	t.Helper()
	line := server.Line("listening at")
	m := regexp.MustCompile(`listening at (\S+)`).FindStringSubmatch(line)
	_, port, err := net.SplitHostPort(m[1])
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return port
}

// TestOnIWARP: ours against ours, over the software fabric.
func TestOnIWARP(t *testing.T) {
	for _, size := range []int{minSize, 64, 4096, maxSize} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			s := strconv.Itoa(size)
			server := runs.Start(t, "-s", "-fabric", "iwarp", "-a", "127.0.0.1", "-p", "0", "-S", s)
			client := runs.Start(t, "-c", "-fabric", "iwarp", "-a", "127.0.0.1", "-p", portOf(t, server), "-C", "200", "-S", s, "-V")
			if out := client.Wait(0); !strings.Contains(out, "200 rounds of "+s+" bytes, data verified") {
				t.Errorf("client: %s", out)
			}
			if out := server.Wait(0); !strings.Contains(out, "server: 200 rounds") {
				t.Errorf("server: %s", out)
			}
		})
	}
}

// TestPrints: what -v shows, at both ends, and a server that stays.
func TestPrints(t *testing.T) {
	server := runs.Start(t, "-s", "-P", "-v", "-fabric", "iwarp", "-a", "127.0.0.1", "-p", "0")
	port := portOf(t, server)
	for range 2 {
		client := runs.Start(t, "-c", "-v", "-fabric", "iwarp", "-a", "127.0.0.1", "-p", port, "-C", "2", "-S", "40")
		out := client.Wait(0)
		if !strings.Contains(out, "ping data: rdma-ping-0: ABCDEFGH") || !strings.Contains(out, "ping data: rdma-ping-1: BCDEFGHI") {
			t.Errorf("client: %s", out)
		}
		server.Line("server ping data: rdma-ping-1: BCDEFGHI")
		server.Line("2 rounds, then the connection ended")
	}
	// A client that asks for more than the server has room for is refused, and
	// the server goes on.
	runs.Start(t, "-c", "-fabric", "iwarp", "-a", "127.0.0.1", "-p", port, "-C", "1", "-S", "65").Wait(1)
	server.Line("client has 65 bytes to read, our buffer holds 1 to 64")
	runs.Start(t, "-c", "-fabric", "iwarp", "-a", "127.0.0.1", "-p", port, "-C", "1", "-S", "64", "-V").Wait(0)
	server.Interrupt()
	server.Wait(0)
}

// TestBadArguments: each is refused before anything is opened.
func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-s", "-c"}, {"-c"}, {"-s", "more"}, {"-s", "-S", "31"}, {"-s", "-S", "65536"},
		{"-c", "-a", "127.0.0.1", "-C", "-1"}, {"-s", "-p", "65536"}, {"-s", "-fabric", "wire"},
	} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

// TestInfoBytes pins the message: rping(1) is at the other end.
func TestInfoBytes(t *testing.T) {
	var b [infoLen]byte
	i := info{addr: 0x0102030405060708, rkey: 0x090a0b0c, size: 0x0d0e0f10}
	i.put(b[:])
	if want := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}; !bytes.Equal(b[:], want) {
		t.Errorf("% x, want % x", b, want)
	}
	if parseInfo(b[:]) != i {
		t.Errorf("parsed as %+v", parseInfo(b[:]))
	}
}

// TestFill: a counter in front, no zero before the last byte, and no two rounds
// in a row alike.
func TestFill(t *testing.T) {
	a, b := make([]byte, 200), make([]byte, 200)
	for n := range 200 {
		fill(a, n)
		if i := bytes.IndexByte(a, 0); i != len(a)-1 {
			t.Fatalf("round %d: first zero at %d", n, i)
		}
		fill(b, n+1)
		if bytes.Equal(a, b) {
			t.Fatalf("rounds %d and %d look alike", n, n+1)
		}
	}
}
