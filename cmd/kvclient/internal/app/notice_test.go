package app

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/rdma"
)

// TestNotice: a command that waits says why after a second, once.
func TestNotice(t *testing.T) {
	for want, why := range map[string]error{
		"connection refused": fmt.Errorf("%w: dial: %w", rdma.ErrPeerGone, syscall.ECONNREFUSED),
		"no shard map yet":   client.ErrNoMap,
		"no server at a:1 (node n1): connection refused": fmt.Errorf("%w: %w", client.ErrUnavailable,
			&client.Unreached{Server: "a:1", Node: "n1", Err: syscall.ECONNREFUSED, Asked: true}),
		`"kv1" has no address`:   &net.DNSError{Err: "no such host", Name: "kv1"},
		"too many sessions":      client.ErrOverloaded,
		"network is unreachable": syscall.ENETUNREACH,
		"something else":         fmt.Errorf("something else"),
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			a := &App{Stderr: &out, Config: &config.Loaded{}}
			a.Config.Servers = []string{"kv1:7400", "kv2:7400"}
			tell := a.notice()
			for range 9 {
				tell(why)
				time.Sleep(100 * time.Millisecond)
			}
			if out.Len() > 0 {
				t.Errorf("after %v: %s", 900*time.Millisecond, out.String())
			}
			for range 50 {
				tell(why)
				time.Sleep(100 * time.Millisecond)
			}
			if got := out.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "kvclient: waiting for kv1:7400, kv2:7400: ") || !strings.Contains(got, want) {
				t.Errorf("it says %q, want %q", got, want)
			}
		})
	}
}
