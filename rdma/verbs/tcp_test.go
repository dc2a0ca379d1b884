package verbs

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
	"github.com/rdmakv/rdmakv/rdma/verbs/internal/tcp"
)

const patience = 30 * time.Second

// deviceless is enough of a device for a listener over TCP: until a request is
// accepted nothing touches hardware.
func deviceless(opts Options) *device {
	d := &device{fabric: New(opts), name: "none0"}
	d.users = 1 // as Listen counts it
	d.attr.MaxAcceptPrivate = maxRejectPrivate
	return d
}

// The listener of the exchange over TCP is the device's: it counts as a user of it
// until it is closed, once, and its errors name the fabric.
func TestListenTCPOfDevice(t *testing.T) {
	d := deviceless(Options{Connect: ConnectTCP})
	l, err := d.listenTCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if d.users != 0 {
		t.Errorf("the device has %d users", d.users)
	}
	var op *rdma.OpError
	if _, err := l.Accept(t.Context()); !errors.As(err, &op) || op.Fabric != fabricName || !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := d.listenTCP(t.Context(), "127.0.0.1"); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("without a port: %v", err)
	}
}

// A caller is the dialling end of a connection that is refused: it has no QP.
type caller struct{}

func (caller) Describe(netip.Addr, *tcp.Endpoint) (tcp.Endpoint, error) {
	return tcp.Endpoint{QPN: 2, GID: gid("10.0.0.1"), MTU: ibv.MTU1024, Link: ibv.LinkEthernet, GIDType: ibv.GIDRoCEv2}, nil
}
func (caller) Bring(_, _ *tcp.Endpoint) error { return rdma.ErrProtocol }
func (caller) Connected(*tcp.Link, []byte) (rdma.ConnInfo, error) {
	return rdma.ConnInfo{}, rdma.ErrProtocol
}
func (caller) PeerGone(string) {}

func TestAcceptForeignQP(t *testing.T) {
	l, err := deviceless(Options{Connect: ConnectTCP}).listenTCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		_, err := tcp.Dial(ctx, caller{}, l.Addr().String(), nil)
		answer <- err
	}()
	r, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Accept(ctx, nil, rdma.ConnParams{}); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("without a QP: %v", err)
	}
	if _, err := r.Accept(ctx, &qp{pd: &pd{dev: deviceless(Options{})}}, rdma.ConnParams{}); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("with the QP of another device: %v", err)
	}
	if err := r.Reject(nil); err != nil {
		t.Errorf("after these mistakes: %v", err)
	}
	if err := <-answer; !errors.Is(err, rdma.ErrRejected) {
		t.Errorf("the peer: %v, want ErrRejected", err)
	}
	var op *rdma.OpError
	if err := r.Reject(nil); !errors.As(err, &op) || !errors.Is(err, rdma.ErrNotConnected) {
		t.Errorf("rejected twice: %v", err)
	}
}
