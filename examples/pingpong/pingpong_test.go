package main

import (
	"bytes"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/examples/internal/runs"
)

func TestMain(m *testing.M) { runs.Main(m, main) }

// play runs a server and clients that wait in every way, and demands all
// rounds.
func play(t *testing.T, fabric, host string) {
	for _, serverWait := range []string{"poll", "event"} {
		t.Run("server-"+serverWait, func(t *testing.T) {
			server := runs.Start(t, "-fabric", fabric, "-listen", net.JoinHostPort(host, "0"), "-wait", serverWait)
			addr := regexp.MustCompile(`listening at (\S+)`).FindStringSubmatch(server.Line("listening at"))[1]
			for _, c := range []struct{ wait, size, rounds string }{
				{"event", "1", "20"}, {"event", "65536", "20"}, {"poll", "64", "20"},
			} {
				client := runs.Start(t, "-fabric", fabric, "-connect", addr, "-wait", c.wait, "-size", c.size, "-n", c.rounds)
				if out := client.Wait(0); !strings.Contains(out, c.rounds+" rounds of "+c.size+" bytes: min ") {
					t.Errorf("client: %s", out)
				}
			}
			server.Interrupt()
			server.Wait(0)
		})
	}
}

func TestOnIWARP(t *testing.T) { play(t, "iwarp", "127.0.0.1") }

func TestOnDevice(t *testing.T) { play(t, "verbs", runs.NeedDevice(t).Addr) }

// TestUsage: a number of rounds that no memory can hold is an error, as are
// numbers that are none.
func TestUsage(t *testing.T) {
	server := runs.Start(t, "-fabric", "iwarp", "-listen", "127.0.0.1:0")
	addr := regexp.MustCompile(`listening at (\S+)`).FindStringSubmatch(server.Line("listening at"))[1]
	for _, rounds := range []string{"0", "-1", "9000000000000000000", "9223372036854775807"} {
		client := runs.Start(t, "-fabric", "iwarp", "-connect", addr, "-n", rounds)
		if out := client.Wait(1); strings.Contains(out, "connected") {
			t.Errorf("%s rounds: %s", rounds, out)
		}
	}
	server.Interrupt()
	server.Wait(0)
}

// TestServerGone: a client whose server is gone ends with an error, not with a
// report.
func TestServerGone(t *testing.T) {
	server := runs.Start(t, "-fabric", "iwarp", "-listen", "127.0.0.1:0")
	addr := regexp.MustCompile(`listening at (\S+)`).FindStringSubmatch(server.Line("listening at"))[1]
	client := runs.Start(t, "-fabric", "iwarp", "-connect", addr, "-n", "100000000")
	client.Line("connected to")
	server.Interrupt()
	if out := client.Wait(1); strings.Contains(out, "p50") {
		t.Errorf("a report: %s", out)
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-listen", "a:1", "-connect", "b:1"}, {"-listen", "127.0.0.1:0", "more"},
		{"-connect", "a:1", "-size", "0"}, {"-connect", "a:1", "-size", "65537"}, {"-connect", "a:1", "-n", "0"},
		{"-connect", "a:1", "-wait", "sleep"}, {"-listen", "127.0.0.1:0", "-fabric", "wire"},
	} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
