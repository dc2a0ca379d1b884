package iwarp

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Within the machine no congestion control paces, whatever the system's default is.
func TestLoopbackIsNotPaced(t *testing.T) {
	a, b := connected(t, pairConfig{})
	for _, e := range []*end{a, b} {
		name, err := unix.GetsockoptString(e.qp.(*qp).wire.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		if name = strings.TrimRight(name, "\x00"); err != nil || name != unpaced {
			t.Fatalf("congestion control %q, %v; want %q", name, err, unpaced)
		}
	}
}
