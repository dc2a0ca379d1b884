package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A stranger is a connection request of somebody who does not know the secret.
type stranger struct{ private []byte }

func (s stranger) PrivateData() []byte { return s.private }
func (stranger) RemoteAddr() net.Addr  { return &net.TCPAddr{} }
func (stranger) Reject([]byte) error   { return nil }
func (stranger) Accept(context.Context, rdma.QP, rdma.ConnParams) (rdma.ConnInfo, error) {
	return rdma.ConnInfo{}, errors.New("accepted")
}

type lines struct {
	slog.Handler
	n atomic.Int64
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) Handle(context.Context, slog.Record) error {
	l.n.Add(1)
	return nil
}

// TestStrangersFillNoLog: who does not know the secret does not fill the log by asking.
func TestStrangersFillNoLog(t *testing.T) {
	l := &lines{Handler: slog.DiscardHandler}
	a := must(New(Config{Name: "a", Secret: []byte("secret"), Routes: func(string) []Route { return nil }, Logger: slog.New(l)}))
	for i := range 2000 {
		c := wire.NodeConnect{Lane: wire.LaneBulk}
		c.Nonce[0], c.Nonce[1] = byte(i), byte(i>>8)
		a.Accept(nil, stranger{wire.AppendNodeConnect(nil, []byte("another"), c)})
	}
	a.running.Wait()
	if n := l.n.Load(); n == 0 || n > 20 {
		t.Errorf("%d lines", n)
	}
	a.Close()
}
