package iwarp

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestFormats runs testdata/formats: each command prints the bytes of one frame
// with its fields, or parses bytes. Rewrite with -rewrite after a look at the
// RFCs, not otherwise: the peers are other people's.
func TestFormats(t *testing.T) {
	datadriven.RunTest(t, "testdata/formats", func(t *testing.T, d *datadriven.TestData) string {
		num := func(key string, def uint64) uint64 {
			var s string
			if !d.HasArg(key) {
				return def
			}
			d.ScanArgs(t, key, &s)
			v, err := strconv.ParseUint(s, 0, 64)
			check(t, err)
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
			b, start := beginFPDU(nil)
			return dump(endFPDU(append(b, ulpdu...), start, !d.HasArg("nocrc")))
		}
		switch d.Cmd {
		case "mpa":
			f := mpaFrame{
				reply: d.HasArg("reply"), markers: d.HasArg("markers"), crc: d.HasArg("crc"), reject: d.HasArg("reject"),
				enhanced: d.HasArg("enhanced"), revision: uint8(num("rev", 2)), peerToPeer: d.HasArg("p2p"),
				ird: uint16(num("ird", 0)), ord: uint16(num("ord", 0)), rtr: RTR(num("rtr", 0)), private: []byte(str("private")),
			}
			return dump(f.append(nil))
		case "parse-mpa":
			f, err := parseMPA(undump(t, d.Input), d.HasArg("reply"))
			if err != nil {
				return err.Error()
			}
			return fmt.Sprintf("rev %d markers %v crc %v reject %v enhanced %v p2p %v rtr %v ird %d ord %d private %q",
				f.revision, f.markers, f.crc, f.reject, f.enhanced, f.peerToPeer, f.rtr, f.ird, f.ord, f.private)
		case "fpdu":
			return frame([]byte(strings.TrimSpace(d.Input)))
		case "send":
			op := opSend
			if d.HasArg("solicited") {
				op = opSendSE
			}
			return frame(append(appendUntagged(nil, op, !d.HasArg("more"), queueSend, u32("msn"), u32("mo")), str("data")...))
		case "read":
			return frame(appendReadRequest(appendUntagged(nil, opReadReq, true, queueRead, u32("msn"), 0), readRequest{
				sinkSTag: u32("sink"), sinkTO: num("sinkto", 0), size: u32("size"), srcSTag: u32("src"), srcTO: num("srcto", 0),
			}))
		case "response":
			return frame(append(appendTagged(nil, opReadResp, !d.HasArg("more"), u32("stag"), num("to", 0)), str("data")...))
		case "write":
			return frame(append(appendTagged(nil, opWrite, !d.HasArg("more"), u32("stag"), num("to", 0)), str("data")...))
		case "terminate":
			x := terminate{code: termSet | termCode(num("code", 0))}
			x.about(undump(t, d.Input))
			return dump(appendTerminateFPDU(nil, &x, true)) + x.code.String() + "\n"
		case "parse":
			s, payload, bad := parseSegment(undump(t, d.Input))
			if bad != 0 {
				return bad.String()
			}
			return fmt.Sprintf("%v tagged %v last %v stag %#x to %#x qn %d msn %d mo %d payload %d", s.op, s.tagged, s.last, s.stag, s.to, s.qn, s.msn, s.mo, len(payload))
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
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	check(t, err)
	return b
}
