package wire

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"
)

// TestWelcomeFlags: the known flags arrive, another is a fault, and without
// flags the bytes are what they were before there were any.
func TestWelcomeFlags(t *testing.T) {
	m := Welcome{Lease: 2 * time.Second, Shards: 1, ServerID: []byte("n")}
	const at = HeaderSize + 72 + 4*5 + 2 // behind the length of the id
	plain := AppendWelcome(nil, 1, m)
	if got := binary.LittleEndian.Uint16(plain[at:]); got != 0 {
		t.Errorf("no flag is written as %#x", got)
	}
	m.Flags = WelcomeLeaseOff | WelcomeClustered | WelcomeTouches | WelcomeSendOnly | WelcomeCache | WelcomeWords
	msg := AppendWelcome(nil, 1, m)
	got, err := ParseWelcome(Body(msg))
	if err != nil || got.Flags != m.Flags || got.Lease != m.Lease || string(got.ServerID) != "n" {
		t.Errorf("read back %+v, %v", got, err)
	}
	for bit := 6; bit < 16; bit++ {
		binary.LittleEndian.PutUint16(msg[at:], 1|1<<bit)
		if _, err := ParseWelcome(Body(msg)); !errors.Is(err, ErrReserved) {
			t.Errorf("flag %d: %v, want ErrReserved", bit, err)
		}
	}
}
