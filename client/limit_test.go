package client_test

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
)

// The time that Dial took is not taken off the limit of the first calls,
// which begin before the watch has ticked.
func TestLimitBeginsAfterDial(t *testing.T) {
	f := clienttest.NewServer(77)
	const timeout = 100 * time.Millisecond
	f.Accept = func(private []byte) []byte {
		time.Sleep(3 * timeout)
		return private
	}
	c := dialFake(t, f, nil, func(cfg *client.Config) { cfg.Timeout = timeout })
	p := rt(c).Only().Begin(t.Context())
	// The clock was started before the connection was accepted.
	if until := time.Duration(p.Until()); until < 4*timeout {
		t.Errorf("the first call may wait until %v after the start of Dial", until)
	}
}
