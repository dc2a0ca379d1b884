package siw_test

import (
	"fmt"
	"os/exec"
	"testing"
)

// Traffic between two ends in one guest passes the device lo, whose segments
// are as long as any FPDU. Here they are as on an Ethernet, and then some are
// lost: FPDUs begin and end anywhere in what TCP delivers.

// tune runs a command that changes lo, and undoes it at the end.
func tune(t *testing.T, do, undo []string) {
	t.Helper()
	command := func(args []string) {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	command(do)
	t.Cleanup(func() { command(undo) })
}

func TestEthernetSegments(t *testing.T) {
	p := siwPort(t)
	tune(t, []string{"/usr/sbin/ip", "link", "set", "lo", "mtu", "1500"}, []string{"/usr/sbin/ip", "link", "set", "lo", "mtu", "65536"})
	everything(t, p, 100)
	tune(t, []string{"tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", "1%"}, []string{"tc", "qdisc", "del", "dev", "lo", "root"})
	t.Run("one of a hundred lost", func(t *testing.T) { everything(t, p, 20) })
}

// everything is what moves bytes; rping does so many iterations.
func everything(t *testing.T, p port, count int) {
	t.Run("READ", TestRead)
	t.Run("WRITE", TestWrite)
	t.Run("SEND", TestSend)
	t.Run("many READs", TestManyReads)
	for _, size := range []int{64, pingMaxSize} {
		d := dose{size, count}
		t.Run(fmt.Sprintf("rping client/%d", size), func(t *testing.T) {
			rpingClient(t, p, habit{want: "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length write"}, d)
		})
		t.Run(fmt.Sprintf("rping server/%d", size), func(t *testing.T) {
			rpingServer(t, p, habit{want: asInitiator(variant(), true)}, d)
		})
	}
}
