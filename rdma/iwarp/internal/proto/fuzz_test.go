package proto

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func FuzzMPA(f *testing.F) {
	req := Frame{CRC: true, Revision: 2, Enhanced: true, IRD: 16, ORD: 16, PeerToPeer: true, RTR: RTRWrite | RTRRead}
	f.Add(req.Append(nil), false)
	req.Private = []byte("hello")
	f.Add(req.Append(nil), false)
	req.Revision, req.Enhanced, req.Reply = 1, false, true
	f.Add(req.Append(nil), true)
	f.Add([]byte(keyReply), true)
	f.Fuzz(func(t *testing.T, b []byte, reply bool) {
		m, err := ParseFrame(b, reply)
		if err != nil {
			return
		}
		if len(m.Private) > MaxPrivate {
			t.Fatalf("%d bytes of private data", len(m.Private))
		}
		again, err := ParseFrame(m.Append(nil), reply)
		if err != nil || again.flags() != m.flags() || again.IRD != m.IRD || again.ORD != m.ORD || again.RTR != m.RTR ||
			again.PeerToPeer != m.PeerToPeer || again.Revision != m.Revision || !bytes.Equal(again.Private, m.Private) {
			t.Fatalf("%+v became %+v: %v", m, again, err)
		}
	})
}

// The deframer finds the same FPDUs however the stream is cut.
func FuzzFPDU(f *testing.F) {
	one := EndFPDU(append([]byte{0, 0}, "hello"...), 0, true)
	f.Add(append(bytes.Clone(one), one...), uint16(3), true)
	f.Add([]byte{0xff, 0xff, 1, 2, 3}, uint16(1), false)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, uint16(1), false)
	f.Fuzz(func(t *testing.T, b []byte, cut uint16, crc bool) {
		type out struct {
			u   []byte
			err error
		}
		run := func(step int) (got []out) {
			start := 0
			for end := 0; ; {
				u, n, want, err := NextFPDU(b[start:end], crc)
				if want < FPDULengthLen || want > MaxFPDULen {
					t.Fatalf("want %d", want)
				}
				switch {
				case err != nil:
					return append(got, out{nil, err})
				case n > 0:
					if n != FPDULen(len(u)) || n%4 != 0 {
						t.Fatalf("FPDU of %d bytes around %d", n, len(u))
					}
					got = append(got, out{u, nil})
					start += n
				case end == len(b):
					return got
				default:
					end = min(len(b), end+step)
				}
			}
		}
		whole, pieces := run(len(b)+1), run(int(cut)+1)
		if len(whole) != len(pieces) {
			t.Fatalf("%d FPDUs at once, %d in pieces", len(whole), len(pieces))
		}
		for i := range whole {
			if !bytes.Equal(whole[i].u, pieces[i].u) || whole[i].err != pieces[i].err {
				t.Fatalf("FPDU %d differs", i)
			}
		}
	})
}

func FuzzSegment(f *testing.F) {
	f.Add(AppendUntagged(nil, OpSend, true, 0, 1, 0))
	f.Add(AppendTagged(nil, OpReadResponse, false, 7, 1<<60))
	f.Add(AppendReadRequest(AppendUntagged(nil, OpReadRequest, true, QueueRead, 3, 0), ReadRequest{1, 2, 3, 4, 5}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, payload, bad := ParseSegment(b)
		x := Terminate{Code: max(bad, CodeUnspecified)}
		x.About(b)
		if len(x.Header) > terminateHeaderMax || !bytes.HasPrefix(b, x.Header) {
			t.Fatalf("Terminate carries % x of % x", x.Header, b)
		}
		if bad != 0 {
			return
		}
		var again []byte
		if s.Tagged {
			again = AppendTagged(nil, s.Op, s.Last, s.STag, s.TO)
		} else {
			again = AppendUntagged(nil, s.Op, s.Last, s.QN, s.MSN, s.MO)
			binary.BigEndian.PutUint32(again[ControlLen:], s.STag)
		}
		again = append(again, payload...)
		// Reserved bits are ignored, so they need not come back.
		norm := bytes.Clone(b)
		norm[0] &^= 0x3c
		norm[1] &^= 0x30
		if !bytes.Equal(again, norm) {
			t.Fatalf("% x became % x", b, again)
		}
		if s.Op == OpReadRequest {
			if r, ok := ParseReadRequest(payload); ok && !bytes.Equal(AppendReadRequest(nil, r), payload) {
				t.Fatalf("%+v", r)
			}
		}
	})
}

func FuzzTerminate(f *testing.F) {
	x := Terminate{Code: CodeBounds}
	x.About(AppendReadRequest(AppendUntagged(nil, OpReadRequest, true, QueueRead, 1, 0), ReadRequest{}))
	f.Add(x.Append(nil))
	f.Add([]byte{0x12, 2, 0xe0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := ParseTerminate(b)
		if !ok {
			return
		}
		_, _, _ = m.Code.String(), m.Code.Status().String(), m.Code.Class().Error()
		if len(m.Header) > terminateHeaderMax {
			t.Fatalf("%d bytes of headers", len(m.Header))
		}
		again, ok := ParseTerminate(m.Append(nil))
		if !ok || again.Code != m.Code || again.HasLen != m.HasLen || again.HasRead != m.HasRead || !bytes.Equal(again.Header, m.Header) {
			t.Fatalf("%+v became %+v", m, again)
		}
	})
}
