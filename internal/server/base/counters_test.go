package base

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

func TestHistogram(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("quantile of nothing")
	}
	for range 99 {
		h.observe(1500) // 1.5 µs: below 2 µs
	}
	h.observe(int64(time.Hour))
	h.observe(-1)
	if got := h.Quantile(0.5); got != 2000 {
		t.Errorf("p50 = %d ns", got)
	}
	if got := h.Quantile(1); got != HistBound(HistBuckets-1) {
		t.Errorf("max = %d ns", got)
	}
}

func TestNames(t *testing.T) {
	for c := range CauseCount {
		if s := c.String(); s == "" || strings.HasPrefix(s, "cause(") {
			t.Errorf("cause %d has no name", c)
		}
	}
	for _, err := range []error{rdma.ErrPeerGone, rdma.ErrAccess, rdma.ErrReceiverNotReady, rdma.ErrProtocol} {
		if CauseOf(err) == CauseNone {
			t.Errorf("%v has no cause", err)
		}
	}
}
