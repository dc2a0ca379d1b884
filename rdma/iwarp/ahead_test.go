package iwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// longRead is a QP that has posted a READ of n bytes to a peer that can say anything.
func longRead(t *testing.T, crc bool, n int) (a *end, p *rawPeer, sink rdma.MR, ask proto.ReadRequest) {
	t.Helper()
	a = newEnd(t, New(Options{NoCRC: !crc}), rdma.QPConfig{})
	p, err := acceptRaw(t, a, rdma.ConnParams{}, func(req proto.Frame) []byte {
		o := Options{NoCRC: !crc}.withDefaults()
		rep, _ := o.answer(&req, true, 128, 128, nil)
		return rep.Append(nil)
	})
	check(t, err)
	p.crc = crc
	p.must() // the RTR frame
	sink = a.mr(n+64, rdma.AccessLocalWrite)
	a.send(rdma.SendWR{ID: 1, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: sink, Off: 32, Len: uint32(n)}}})
	_, body := p.must()
	ask, ok := proto.ParseReadRequest(body)
	if !ok || int(ask.Size) != n {
		t.Fatalf("%+v", ask)
	}
	return a, p, sink, ask
}

// response is the answer to ask as segments of these lengths; the last one takes the rest.
func (p *rawPeer) response(ask proto.ReadRequest, value []byte, lengths func(i int) int) (segments [][]byte) {
	for off, i := 0, 0; off < len(value); i++ {
		n := min(lengths(i), len(value)-off)
		last := off+n == len(value)
		segments = append(segments, p.frame(proto.AppendTagged(nil, proto.OpReadResponse, last, ask.SinkSTag, ask.SinkTO+uint64(off)), value[off:off+n]))
		off += n
	}
	return segments
}

// TestGuessedSegments: a response reaches its sink whatever its segments are, whatever comes
// between them, and however the stream is cut; and what comes between them is not lost.
func TestGuessedSegments(t *testing.T) {
	const n = 300_001
	value := make([]byte, n)
	fill(value, 7)
	same := func(k int) func(int) int { return func(int) int { return k } }
	for name, lengths := range map[string]func(int) int{
		"32 KiB": same(32 << 10), "odd": same(32<<10 - 3), "small": same(1000), "longest": same(maxPayload),
		"rising": func(i int) int { return 8<<10 + i*999 }, "falling": func(i int) int { return max(100, 64000-i*7001) },
		"mixed": func(i int) int { return []int{40000, 40000, 17, 40000, 5000}[i%5] },
	} {
		for _, crc := range []bool{true, false} {
			for _, every := range []int{0, 1, 3} { // a SEND before so many segments
				for _, cut := range []int{0, 1 << 10, 70_000} {
					passed := t.Run(fmt.Sprintf("%s/crc=%v/every=%d/cut=%d", name, crc, every, cut), func(t *testing.T) {
						a, p, sink, ask := longRead(t, crc, n)
						inbox := a.mr(400*16, rdma.AccessLocalWrite)
						var stream []byte
						sent := 0
						for i, s := range p.response(ask, value, lengths) {
							if every > 0 && i%every == every-1 && sent < 100 {
								a.recv(rdma.RecvWR{ID: 2, SGL: []rdma.SGE{{MR: inbox, Off: uint64(16 * sent), Len: 16}}})
								sent++
								note := binary.BigEndian.AppendUint64(nil, uint64(sent))
								stream = append(stream, p.frame(proto.AppendUntagged(nil, proto.OpSend, true, proto.QueueSend, uint32(sent), 0), note)...)
							}
							stream = append(stream, s...)
						}
						for len(stream) > 0 {
							k := len(stream)
							if cut > 0 {
								k = min(cut, k)
							}
							p.write(stream[:k])
							stream = stream[k:]
						}
						a.waitOK(1 + sent)
						if got := sink.Bytes(); !bytes.Equal(got[32:32+n], value) || !bytes.Equal(got[:32], make([]byte, 32)) || !bytes.Equal(got[32+n:], make([]byte, 32)) {
							t.Error("the bytes differ")
						}
						for i := range sent {
							if got := binary.BigEndian.Uint64(inbox.Bytes()[16*i:]); got != uint64(i+1) {
								t.Fatalf("SEND %d says %d", i+1, got)
							}
						}
						_ = p.conn.Close()
						a.close()
					})
					if !passed {
						return // the others would wait for their bytes, too
					}
				}
			}
		}
	}
}

// TestWrongSegmentAmongGuessed: a segment that is not the one which is due ends the connection, also
// where it was read together with those before it.
func TestWrongSegmentAmongGuessed(t *testing.T) {
	const n, k = 128 << 10, 32 << 10
	for name, c := range map[string]struct {
		spoil func(segment []byte)
		want  proto.Code
	}{
		"its offset": {func(b []byte) { b[15] ^= 8 }, proto.CodeDDPBounds},
		"its STag":   {func(b []byte) { b[7] ^= 1 }, proto.CodeDDPInvalidSTag},
		"it is last": {func(b []byte) { b[2] ^= 0x40 }, proto.CodeDDPBounds},
		"its CRC":    {nil, proto.CodeCRC},
	} {
		for at := range 4 {
			passed := t.Run(fmt.Sprintf("%s/%d", name, at), func(t *testing.T) {
				a, p, _, ask := longRead(t, true, n)
				segments := p.response(ask, make([]byte, n), func(int) int { return k })
				if b := segments[at]; c.spoil == nil {
					b[len(b)-1] ^= 1
				} else {
					c.spoil(b)
					end := len(b) - proto.FPDUCRCLen
					binary.LittleEndian.PutUint32(b[end:], proto.Checksum(0, b[:end]))
				}
				p.write(bytes.Join(segments, nil))
				if wc := a.wait(1)[0]; wc.Status == rdma.StatusSuccess {
					t.Error("the READ succeeded")
				}
				if term := p.terminated(); term.Code != c.want {
					t.Errorf("Terminate %v, want %v", term.Code, c.want)
				}
				a.close()
			})
			if !passed {
				return
			}
		}
	}
}

// TestGatheredResponses: without a CRC a long response is written out of its region. It is whole
// also where the peer reads it late and in small pieces.
func TestGatheredResponses(t *testing.T) {
	const n = 12 << 20
	b, p, src := asked(t, n)
	fill(src.Bytes(), 3)
	want := bytes.Clone(src.Bytes())
	p.read(1, src, 5, n-5)
	stuck(t, b)
	p.wantResponse(want[5:])
	_ = p.conn.Close()
	b.close()
}

// TestSourceClosesUnderAPeerThatDoesNotRead: the region of a response is not kept by a peer that
// stops reading; what it has not got by then is refused.
func TestSourceClosesUnderAPeerThatDoesNotRead(t *testing.T) {
	const n = 64 << 20
	b, p, _ := asked(t, 8)
	src, err := b.pd.RegMR(make([]byte, n), rdma.AccessRemoteRead)
	check(t, err)
	p.read(1, src, 0, n)
	stuck(t, b)
	closed := make(chan error, 1)
	go func() { closed <- src.Close() }()
	select {
	case err := <-closed:
		check(t, err)
	case <-time.After(15 * time.Second): // PeerTimeout is later
		t.Fatal("MR.Close waits for a peer that does not read")
	}
	if term := p.terminated(); term.Code != proto.CodeInvalidSTag {
		t.Errorf("%v", term.Code)
	}
	b.close()
}

// asked is a QP without CRC, and a peer that can ask it for the region.
func asked(t *testing.T, n int) (b *end, p *rawPeer, src rdma.MR) {
	t.Helper()
	b = newEnd(t, New(Options{NoCRC: true}), rdma.QPConfig{Access: rdma.AccessRemoteRead})
	o := Options{NoCRC: true}.withDefaults()
	p = dialRaw(t, b, o.request(true, 16, 16, nil), rtrWrite(false))
	return b, p, b.mr(n, rdma.AccessRemoteRead)
}

// read asks for n bytes of a region.
func (p *rawPeer) read(msn uint32, src rdma.MR, off uint64, n uint32) {
	p.send(proto.AppendUntagged(nil, proto.OpReadRequest, true, proto.QueueRead, msn, 0),
		proto.AppendReadRequest(nil, proto.ReadRequest{SinkSTag: 9, Size: n, SourceSTag: src.RKey(), SourceTO: off}))
}

// wantResponse reads a whole response.
func (p *rawPeer) wantResponse(want []byte) {
	p.t.Helper()
	for off := 0; off < len(want); {
		s, payload := p.must()
		if s.Op != proto.OpReadResponse || s.STag != 9 || s.TO != uint64(off) || off+len(payload) > len(want) || s.Last != (off+len(payload) == len(want)) {
			p.t.Fatalf("at %d: %+v with %d bytes", off, s, len(payload))
		}
		if !bytes.Equal(payload, want[off:off+len(payload)]) {
			p.t.Fatalf("the bytes from %d on differ", off)
		}
		off += len(payload)
	}
}

// stuck waits until the peer's not reading has stopped the transmitter.
func stuck(t *testing.T, e *end) {
	t.Helper()
	q := e.qp.(*qp)
	last, same := uint32(0), 0
	eventually(t, "the socket is not full", func() bool {
		q.Mu.Lock()
		defer q.Mu.Unlock()
		sent := uint32(0)
		if q.resp.ready() {
			sent = q.resp.front().sent
		}
		if same++; sent != last || sent == 0 || !q.tx.busy {
			last, same = sent, 0
		}
		time.Sleep(time.Millisecond)
		return same > 20
	})
}

// TestBulkIsBounded: so many transmitters of a device as maxBulk may frame more than a buffer at a
// time, another one when one of them is idle, and none once there is a second domain.
func TestBulkIsBounded(t *testing.T) {
	e := newEnd(t, New(Options{NoCRC: true}), rdma.QPConfig{})
	defer e.close()
	p := e.pd.(*pd)
	var all []*transmitter
	for range maxBulk + 3 {
		all = append(all, &transmitter{q: &qp{pd: p}, most: txMost})
	}
	for i, tx := range all {
		want := txMost
		if i >= maxBulk {
			want = txTarget
		}
		if !gathers { // under the race detector everything is copied
			want = txTarget
		}
		if got := tx.longest(); got != want {
			t.Errorf("transmitter %d of %d may frame %d bytes, want %d", i, maxBulk, got, want)
		}
	}
	if !gathers {
		return
	}
	all[3].leaveBulk()
	all[3].leaveBulk()
	if got, none := all[maxBulk].longest(), all[maxBulk+1].longest(); got != txMost || none != txTarget {
		t.Errorf("one has left: the next two may frame %d and %d bytes", got, none)
	}
	all[3].most = txTarget - 1
	if got := all[3].longest(); got != txTarget {
		t.Errorf("a socket that takes little is handed %d bytes", got)
	}
	other, err := p.dev.AllocPD()
	check(t, err)
	if got := all[0].longest(); got != txTarget {
		t.Errorf("beside another domain %d bytes are framed", got)
	}
	check(t, other.Close())
	for _, tx := range all {
		tx.leaveBulk()
	}
	if n := p.dev.bulk.Load(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestBulkBehindAPeerThatDoesNotRead: a connection whose peer reads fast and then stops keeps no
// more than one write of it, and its place goes to others when it ends.
func TestBulkBehindAPeerThatDoesNotRead(t *testing.T) {
	const n = 64 << 20
	b, p, src := asked(t, n)
	q := b.qp.(*qp)
	p.read(1, src, 0, n)
	p.wantResponse(src.Bytes())
	p.read(2, src, 0, n)
	stuck(t, b)
	q.Mu.Lock()
	held := q.tx.buf.len() + cap(q.tx.buf.b)
	q.Mu.Unlock()
	if held > 2*(txMost+txCap) {
		t.Errorf("%d bytes are kept for a peer that does not read", held)
	}
	_ = p.conn.Close()
	eventually(t, "the transmitter's place is not free", func() bool { return q.pd.dev.bulk.Load() == 0 })
	b.close()
}
