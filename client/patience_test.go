package client

import (
	"testing"
	"time"
)

// The time that Dial took is not taken off the patience of the first calls,
// which begin before the watch has ticked.
func TestPatienceBeginsAfterDial(t *testing.T) {
	f := newFakeServer(77)
	const timeout = 100 * time.Millisecond
	f.accept = func(private []byte) []byte {
		time.Sleep(3 * timeout)
		return private
	}
	c := f.dial(t, nil, func(cfg *Config) { cfg.Timeout = timeout })
	p := c.solo.begin(t.Context())
	// c.start is from before the connection was accepted.
	if until := time.Duration(p.until); until < 4*timeout {
		t.Errorf("the first call may wait until %v after the start of Dial", until)
	}
}
