package proto

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestFormats runs testdata/formats: each command prints the bytes of one frame
// with its fields, or parses bytes. Rewrite with -rewrite only after a look at
// the RFCs, because peers of other vendors read these bytes.
func TestFormats(t *testing.T) {
	datadriven.RunTest(t, "testdata/formats", func(t *testing.T, d *datadriven.TestData) string {
		num := func(key string, def uint64) uint64 {
			var s string
			if !d.HasArg(key) {
				return def
			}
			d.ScanArgs(t, key, &s)
			v, err := strconv.ParseUint(s, 0, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		u32 := func(key string) uint32 { return uint32(num(key, 0)) }
		str := func(key string) (s string) {
			if d.HasArg(key) {
				d.ScanArgs(t, key, &s)
			}
			return s
		}
		frame := func(ulpdu []byte) string {
			b, start := BeginFPDU(nil)
			return dump(EndFPDU(append(b, ulpdu...), start, !d.HasArg("nocrc")))
		}
		switch d.Cmd {
		case "mpa":
			f := Frame{
				Reply: d.HasArg("reply"), Markers: d.HasArg("markers"), CRC: d.HasArg("crc"), Reject: d.HasArg("reject"),
				Enhanced: d.HasArg("enhanced"), Revision: uint8(num("rev", 2)), PeerToPeer: d.HasArg("p2p"),
				IRD: uint16(num("ird", 0)), ORD: uint16(num("ord", 0)), RTR: RTR(num("rtr", 0)), Private: []byte(str("private")),
			}
			return dump(f.Append(nil))
		case "parse-mpa":
			f, err := ParseFrame(undump(t, d.Input), d.HasArg("reply"))
			if err != nil {
				return err.Error()
			}
			return fmt.Sprintf("rev %d markers %v crc %v reject %v enhanced %v p2p %v rtr %v ird %d ord %d private %q",
				f.Revision, f.Markers, f.CRC, f.Reject, f.Enhanced, f.PeerToPeer, f.RTR, f.IRD, f.ORD, f.Private)
		case "fpdu":
			return frame([]byte(strings.TrimSpace(d.Input)))
		case "send":
			op := OpSend
			if d.HasArg("solicited") {
				op = OpSendSE
			}
			return frame(append(AppendUntagged(nil, op, !d.HasArg("more"), QueueSend, u32("msn"), u32("mo")), str("data")...))
		case "read":
			return frame(AppendReadRequest(AppendUntagged(nil, OpReadRequest, true, QueueRead, u32("msn"), 0), ReadRequest{
				SinkSTag: u32("sink"), SinkTO: num("sinkto", 0), Size: u32("size"), SourceSTag: u32("src"), SourceTO: num("srcto", 0),
			}))
		case "response":
			return frame(append(AppendTagged(nil, OpReadResponse, !d.HasArg("more"), u32("stag"), num("to", 0)), str("data")...))
		case "write":
			return frame(append(AppendTagged(nil, OpWrite, !d.HasArg("more"), u32("stag"), num("to", 0)), str("data")...))
		case "terminate":
			x := Terminate{Code: codeSet | Code(num("code", 0))}
			x.About(undump(t, d.Input))
			return dump(AppendTerminate(nil, &x, true)) + x.Code.String() + "\n"
		case "parse":
			s, payload, bad := ParseSegment(undump(t, d.Input))
			if bad != 0 {
				return bad.String()
			}
			return fmt.Sprintf("%v tagged %v last %v stag %#x to %#x qn %d msn %d mo %d payload %d", s.Op, s.Tagged, s.Last, s.STag, s.TO, s.QN, s.MSN, s.MO, len(payload))
		}
		t.Fatalf("unknown command %q", d.Cmd)
		return ""
	})
}

// dump prints 16 bytes a line.
func dump(b []byte) string {
	var s strings.Builder
	for i := 0; i < len(b); i += 16 {
		fmt.Fprintf(&s, "%04x  % x\n", i, b[i:min(i+16, len(b))])
	}
	return s.String()
}

// undump reads hex digits, with spaces and newlines anywhere.
func undump(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
