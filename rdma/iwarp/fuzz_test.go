package iwarp

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// FuzzNegotiation: whatever a peer opens with or answers, the stream reader agrees with
// the parser of a whole frame, and what comes of it is within what this end offered.
func FuzzNegotiation(f *testing.F) {
	req := plainRequest()
	f.Add(req.Append(nil), false)
	req.Private = []byte("hello")
	f.Add(req.Append(nil), false)
	req.Revision, req.Enhanced, req.Reply = 1, false, true
	f.Add(req.Append(nil), true)
	f.Add([]byte("MPA ID Rep Frame"), true)
	f.Fuzz(func(t *testing.T, b []byte, reply bool) {
		m, err := proto.ParseFrame(b, reply)
		s, serr := readMPA(bytes.NewReader(b), reply)
		if err == nil && (serr != nil || !bytes.Equal(s.Append(nil), m.Append(nil))) {
			t.Fatalf("whole: %+v, streamed: %+v, %v", m, s, serr)
		}
		if err != nil {
			return
		}
		o := Options{}.withDefaults()
		if !reply && refusal(&m) == "" {
			rep, terms := o.answer(&m, false, 16, 16, nil)
			if terms.ird < 0 || terms.ird > 16 || terms.ord < 0 || terms.ord > 16 || (m.CRC && !rep.CRC) {
				t.Fatalf("%+v: %+v", m, terms)
			}
		}
		if reply && !m.Reject {
			own := plainRequest()
			if terms, _, err := judgeReply(&own, &m, 16, 16); err == nil && (terms.ird > 16 || terms.ord > 16 || terms.ord < 0 || !terms.crc) {
				t.Fatalf("%+v: %+v", m, terms)
			}
		}
	})
}

// A script is a sequence of segments for a peer to send: the fuzzer writes the
// inside of FPDUs, so that its bytes get past the CRC. Each record is a length
// byte pair and that many bytes; what is left is sent raw.
func scriptFrames(script []byte, crc bool) []byte {
	var out []byte
	for len(script) >= 2 {
		n := int(script[0]) | int(script[1]&3)<<8
		raw := script[1]&0x80 != 0
		script = script[2:]
		n = min(n, len(script))
		if raw {
			out = append(out, script[:n]...)
		} else {
			var start int
			out, start = proto.BeginFPDU(out)
			out = append(out, script[:n]...)
			out = proto.EndFPDU(out, start, crc)
		}
		script = script[n:]
	}
	return out
}

func record(seg []byte) []byte {
	return append([]byte{byte(len(seg)), byte(len(seg) >> 8)}, seg...)
}

// FuzzResponder feeds a byte stream to a whole responder whose memory stands
// between canaries: they do not change, and no byte of them leaves.
func FuzzResponder(f *testing.F) {
	const window, guard = 256, 512
	send := append(proto.AppendUntagged(nil, proto.OpSend, true, proto.QueueSend, 1, 0), "data"...)
	read := readReq(1, proto.ReadRequest{SinkSTag: 1, Size: 64, SourceSTag: 0xAAAAAAAA})
	write := append(proto.AppendTagged(nil, proto.OpWrite, true, 0xBBBBBBBB, 8), "written"...)
	f.Add(record(send))
	f.Add(record(read))
	f.Add(record(write))
	f.Add(append(append(record(write), record(read)...), record(send)...))
	f.Add(append(record(readReq(1, proto.ReadRequest{Size: 1 << 31, SourceSTag: 0xAAAAAAAA, SourceTO: 1 << 63})), record(send)...))
	f.Add([]byte{4, 0x80, 0xff, 0xff, 0x41, 0x43})

	// The canary is a byte that no window contains. The regions are slices of
	// one array each, so that an access outside is an access to a canary.
	const canary = 0xC5
	f.Fuzz(func(t *testing.T, script []byte) {
		dev := newDevice(New(Options{}), "fuzz")
		p, _ := dev.AllocPD()
		c, _ := dev.CreateCQ(1024)
		made, err := p.CreateQP(rdma.QPConfig{SendCQ: c, RecvCQ: c, Access: rdma.AccessRemoteRead | rdma.AccessRemoteWrite})
		check(t, err)
		q := made.(*qp)
		arrays := make([][]byte, 3)
		regs := make([]rdma.MR, 3)
		for i := range arrays {
			arrays[i] = bytes.Repeat([]byte{canary}, window+2*guard)
			clear(arrays[i][guard : guard+window])
			access := rdma.AccessLocalWrite
			switch i {
			case 0:
				access = rdma.AccessRemoteRead
			case 1:
				access |= rdma.AccessRemoteWrite
			}
			regs[i], err = p.RegMR(arrays[i][guard:guard+window:guard+window], access)
			check(t, err)
		}
		for range 2 {
			_, err := q.PostRecv([]rdma.RecvWR{{SGL: []rdma.SGE{{MR: regs[2], Off: 8, Len: 64}, {MR: regs[2], Off: 128, Len: 30}}}})
			check(t, err)
		}
		// The fuzzer cannot know the STags: fixed stand-ins are replaced.
		script = bytes.Clone(script)
		for i, mark := range []uint32{0xAAAAAAAA, 0xBBBBBBBB, 0xDDDDDDDD} {
			old, stag := binary.BigEndian.AppendUint32(nil, mark), binary.BigEndian.AppendUint32(nil, regs[i].LKey())
			script = bytes.ReplaceAll(script, old, stag)
		}
		out := runRaw(t, q, terms{crc: true, ird: 4, ord: 4, silent: false}, func(c net.Conn) {
			_, _ = c.Write(scriptFrames(script, true))
		})
		check(t, q.Close())
		for i := range arrays {
			for j, b := range arrays[i] {
				if (j < guard || j >= guard+window) && b != canary {
					t.Fatalf("canary %d of region %d changed to %#x", j, i, b)
				}
			}
			if i == 0 && !bytes.Equal(arrays[0][guard:guard+window], make([]byte, window)) {
				t.Fatal("the read-only region changed")
			}
			check(t, regs[i].Close())
		}
		// What leaves are zeroes of the readable window, and headers; 8 canaries
		// in a row are neither, unless the script brought them.
		leak := bytes.Repeat([]byte{canary}, 8)
		if bytes.Contains(out, leak) && !bytes.Contains(script, leak) {
			t.Fatalf("a canary left: % x", out)
		}
		check(t, c.Close())
		check(t, p.Close())
		check(t, dev.Close())
	})
}

// runRaw attaches q to one end of a TCP connection, lets f play the other end,
// hangs up, and returns everything q said.
func runRaw(t testing.TB, q *qp, tm terms, f func(c net.Conn)) []byte {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(t, err)
	defer l.Close()
	peer, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	check(t, err)
	defer peer.Close()
	own, err := l.AcceptTCP()
	check(t, err)
	check(t, q.attach(own, own, &tm, rdma.QPRTS))
	check(t, peer.SetDeadline(time.Now().Add(10*time.Second)))
	said := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(peer)
		said <- b
	}()
	f(peer)
	_ = peer.CloseWrite()
	return <-said
}

// FuzzRequester has three READs and a SEND under way and lets a hostile
// responder answer.
func FuzzRequester(f *testing.F) {
	const window, guard = 256, 512
	resp := append(proto.AppendTagged(nil, proto.OpReadResponse, true, 0xAAAAAAAA, 16), make([]byte, 64)...)
	part := append(proto.AppendTagged(nil, proto.OpReadResponse, false, 0xAAAAAAAA, 16), make([]byte, 32)...)
	f.Add(record(resp))
	f.Add(append(record(resp), record(resp)...))
	f.Add(append(record(part), record(append(proto.AppendTagged(nil, proto.OpReadResponse, true, 0xAAAAAAAA, 48), make([]byte, 32)...))...))
	f.Add(record(append(proto.AppendUntagged(nil, proto.OpTerminate, true, proto.QueueTerminate, 1, 0), 1, 0, 0xe0, 0)))
	f.Fuzz(func(t *testing.T, script []byte) {
		dev := newDevice(New(Options{}), "fuzz")
		p, _ := dev.AllocPD()
		c, _ := dev.CreateCQ(1024)
		made, err := p.CreateQP(rdma.QPConfig{SendCQ: c, RecvCQ: c})
		check(t, err)
		q := made.(*qp)
		const canary = 0xC5
		array := bytes.Repeat([]byte{canary}, window+2*guard)
		reg, err := p.RegMR(array[guard:guard+window:guard+window], rdma.AccessLocalWrite)
		check(t, err)
		script = bytes.ReplaceAll(bytes.Clone(script), binary.BigEndian.AppendUint32(nil, 0xAAAAAAAA), binary.BigEndian.AppendUint32(nil, reg.LKey()))
		const posted = 4
		runRaw(t, q, terms{crc: true, ird: 4, ord: 2}, func(conn net.Conn) {
			sink := []rdma.SGE{{MR: reg, Off: 16, Len: 64}}
			n, err := q.PostSend([]rdma.SendWR{
				{ID: 0, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: sink},
				{ID: 1, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: sink},
				{ID: 2, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: sink},
				{ID: 3, Op: rdma.OpSend, Flags: rdma.SendSignaled},
			})
			if n != posted || err != nil {
				t.Errorf("posted %d: %v", n, err)
			}
			_, _ = conn.Write(scriptFrames(script, true))
		})
		check(t, q.Close())
		var wcs [8]rdma.WC
		n, err := c.Poll(wcs[:])
		check(t, err)
		if n != posted {
			t.Fatalf("%d completions of %d", n, posted)
		}
		for i := range n {
			if wcs[i].ID != uint64(i) {
				t.Fatalf("completion %d is of %d", i, wcs[i].ID)
			}
		}
		for j, b := range array {
			if (j < guard+16 || j >= guard+16+64) && b != canary {
				t.Fatalf("byte %d changed to %#x", j, b)
			}
		}
		check(t, reg.Close())
		check(t, c.Close())
		check(t, p.Close())
		check(t, dev.Close())
	})
}
