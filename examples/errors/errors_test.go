package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/examples/internal/runs"
)

func TestMain(m *testing.M) { runs.Main(m, main) }

// sendOnIWARP is what an iWARP SEND says that the peer refuses: that its memory may be
// reused (it was sent), or that it was flushed (the refusal came first).
const sendOnIWARP = "client SEND: (SUCCESS|WR_FLUSH_ERR)"

// statuses extracts "who what → status" from the output of one scene.
func statuses(out string) []string {
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^   (client|server) +(.*?)  +([A-Z_]+) \(\d+\)$`).FindAllStringSubmatch(out, -1) {
		got = append(got, m[1]+" "+m[2]+": "+m[3])
	}
	return got
}

func play(t *testing.T, fabric string, scenes map[string][]string) {
	for _, s := range sceneNames() {
		t.Run(s, func(t *testing.T) {
			out := runs.Start(t, "-fabric", fabric, "-only", s).Wait(0)
			want := append(scenes[s], "client READ after recovery: SUCCESS")
			got := statuses(out)
			if !slices.EqualFunc(got, want, func(g, w string) bool { return regexp.MustCompile("^" + w + "$").MatchString(g) }) {
				t.Errorf("statuses\n  %s\nwant\n  %s\n%s", strings.Join(got, "\n  "), strings.Join(want, "\n  "), out)
			}
		})
	}
}

func TestOnIWARP(t *testing.T) {
	play(t, "iwarp", map[string][]string{
		"rnr": {sendOnIWARP},
		"flush": {
			"server RECV: WR_FLUSH_ERR", "server RECV: WR_FLUSH_ERR", "server RECV: WR_FLUSH_ERR", "server SEND: WR_FLUSH_ERR",
		},
		"access": {
			"client READ that is right: SUCCESS", "client READ with a wrong rkey: REM_ACCESS_ERR", "client READ behind it: WR_FLUSH_ERR",
			"client READ that is right: SUCCESS", "client READ past the end: REM_ACCESS_ERR", "client READ behind it: WR_FLUSH_ERR",
			"client READ without the right: REM_ACCESS_ERR", "client READ behind it: WR_FLUSH_ERR",
		},
		"length": {"server RECV: LOC_LEN_ERR", sendOnIWARP},
		"local":  {"client SEND of foreign memory: LOC_PROT_ERR"},
		"gone":   {"client READ: WR_FLUSH_ERR"},
	})
}

// TestOnDevice: RoCE, in the lab the kernel's software one.
func TestOnDevice(t *testing.T) {
	if runs.NeedDevice(t).IWARP {
		t.Skip("an iWARP device is connected by the connection manager only")
	}
	play(t, "verbs", map[string][]string{
		"rnr": {"client SEND: RNR_RETRY_EXC_ERR", "client SEND: SUCCESS", "server RECV: SUCCESS"},
		"flush": {
			"server RECV: WR_FLUSH_ERR", "server RECV: WR_FLUSH_ERR", "server RECV: WR_FLUSH_ERR", "server SEND: WR_FLUSH_ERR",
		},
		"access": {
			"client READ that is right: SUCCESS", "client READ with a wrong rkey: REM_ACCESS_ERR", "client READ behind it: WR_FLUSH_ERR",
			"client READ that is right: SUCCESS", "client READ past the end: REM_ACCESS_ERR", "client READ behind it: WR_FLUSH_ERR",
			"client READ without the right: REM_INV_REQ_ERR", "client READ behind it: WR_FLUSH_ERR",
		},
		// By the book LOC_LEN_ERR with REM_INV_REQ_ERR, and LOC_PROT_ERR; the
		// kernel's rdma_rxe says the others.
		"length": {"server RECV: (LOC_LEN_ERR|LOC_QP_OP_ERR)", "client SEND: (REM_INV_REQ_ERR|REM_OP_ERR)"},
		"local":  {"client SEND of foreign memory: (LOC_PROT_ERR|LOC_QP_OP_ERR)"},
		"gone":   {"client READ: RETRY_EXC_ERR"},
		"events": {
			"server RECV: SUCCESS", "client SEND: SUCCESS", "server RECV: SUCCESS", "client SEND: SUCCESS",
		},
	})
}

// TestDeviceEvents: the device says that a shared receive queue runs low.
func TestDeviceEvents(t *testing.T) {
	if runs.NeedDevice(t).IWARP {
		t.Skip("an iWARP device is connected by the connection manager only")
	}
	out := runs.Start(t, "-fabric", "verbs", "-only", "events").Wait(0)
	if !strings.Contains(out, "SRQ_LIMIT_REACHED") {
		t.Errorf("no event:\n%s", out)
	}
}

// TestAll: the scenes one after the other, as a reader starts them.
func TestAll(t *testing.T) {
	out := runs.Start(t, "-fabric", "iwarp").Wait(0)
	if n := strings.Count(out, "READ after recovery        SUCCESS (0)"); n != len(scenes) {
		t.Errorf("%d recoveries of %d:\n%s", n, len(scenes), out)
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"-fabric", "wire"}, {"-fabric", "iwarp", "-only", "none"}} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
