package proto

import "testing"

// siwTerminate is what a kernel 6.1 sent when it refused a READ by its STag:
// layer 0, type 1, code 0, with the nibbles and the flags the wrong way round.
// The length of the segment and the sequence number in the embedded READ
// request are wrong too, and are not used.
const siwTerminate = "10000700" + // control
	"0012" + "4101000000000000000100000040" + "00000000" + // length, DDP header
	"4b2f110000000000000000000000004074740000" + "0000000000000000" // READ request

func TestSiwTerminate(t *testing.T) {
	b := undump(t, siwTerminate)
	got, ok := ParseTerminate(b)
	if !ok || got.Code != CodeInvalidSTag || !got.HasLen || !got.HasRead || len(got.Header) != UntaggedLen+ReadRequestLen {
		t.Errorf("parsed as %v (ok %v), header of %d bytes, want %v with 46", got.Code, ok, len(got.Header), CodeInvalidSTag)
	}
	// Without flags there is nothing to tell the two orders apart: the RFC's.
	got, ok = ParseTerminate([]byte{0x20, 0x02, 0, 0})
	if !ok || got.Code != CodeCRC {
		t.Errorf("parsed as %v (ok %v), want %v", got.Code, ok, CodeCRC)
	}
}
