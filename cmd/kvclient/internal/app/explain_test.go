package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
)

// TestMissed: the reason comes from the fabric that came farthest, in the words of
// the network, and each address is named once.
func TestMissed(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	at := func(server string, err error) *client.Unreached {
		return &client.Unreached{Server: server, Fabric: "iwarp", Err: fmt.Errorf("iwarp: %w: iwarp connect %s: %w: dial: %w", client.ErrUnavailable, server, rdma.ErrPeerGone, err), Asked: true}
	}
	node := at("c:1", refused)
	node.Node = "n3"
	silent := at("d:1", context.DeadlineExceeded)
	silent.Answered = true
	wrong := &client.Unreached{Server: "e:1", Fabric: "iwarp", Err: client.ErrAuth, Asked: true, Answered: true}
	bare := &client.Unreached{Server: "f:1", Fabric: "verbs", Err: fmt.Errorf("verbs route f:1: %w: ibv: no device", rdma.ErrNoDevice)}
	for _, c := range []struct {
		missed []*client.Unreached
		want   string
	}{
		{[]*client.Unreached{at("a:1", refused)}, "no server at a:1: connection refused"},
		{[]*client.Unreached{at("a:1", refused), at("b:1", refused)}, "no server at a:1, b:1: connection refused"},
		{[]*client.Unreached{node}, "no server at c:1 (node n3): connection refused"},
		{[]*client.Unreached{at("a:1", refused), at("h:1", &net.DNSError{Err: "no such host", Name: "h", IsNotFound: true})}, "no server at a:1: connection refused; no server at h:1: no such host"},
		{[]*client.Unreached{at("a:1", context.DeadlineExceeded)}, "no server at a:1: no answer"},
		{[]*client.Unreached{at("a:1", fmt.Errorf("%w: HTTP", rdma.ErrProtocol))}, "no server at a:1: what listens there is no rdmakv server (is it the address of listen?)"},
		{[]*client.Unreached{silent}, "a server accepts connections at d:1 and does not answer in time"},
		{[]*client.Unreached{wrong}, "refused by the server at e:1: authentication failed"},
		{[]*client.Unreached{bare}, "no way by verbs to f:1: no device"},
	} {
		if got := missedText(c.missed); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	// A write that may have been done is reported as such.
	a := &App{}
	if got := a.Explain(errors.Join(client.ErrOutcomeUnknown, at("a:1", refused))); !strings.Contains(got, "outcome unknown") {
		t.Error(got)
	}
}
