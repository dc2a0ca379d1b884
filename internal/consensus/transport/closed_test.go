package transport

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestClosedWhileAnEndIsMade: the maker of an end is slow, Release does not wait for it any longer than its caller does, and the device is closed:
// the end is none, and nothing falls over.
func TestClosedWhileAnEndIsMade(t *testing.T) {
	a, _ := two(t)
	dev := must(iwarp.New(iwarp.Options{}).Open(t.Context(), ""))
	e := &end{}
	if _, err := a.begin(dev, e); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := a.Release(ctx, dev); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	_ = dev.Close()
	a.Closed(dev)
	if err := a.opened(dev, e); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("it is an end: %v", err)
	}
	e.close()
}
