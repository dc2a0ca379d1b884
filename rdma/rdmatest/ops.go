package rdmatest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

func opChecks() []check {
	return []check{
		{"send sizes", checkSendSizes},
		{"send scattered and gathered", checkSendSGL},
		{"read sizes and offsets", checkReadSizes},
		{"read scattered", checkReadSGL},
		{"read meets writers", checkReadWords},
		{"write", checkWrite},
		{"inline", checkInline},
		{"fence", checkFence},
		{"signaling", checkSignaling},
		{"signal all", checkSignalAll},
		{"order of completions", checkOrder},
		{"batches", checkBatches},
		{"solicited", checkSolicited},
		{"unsupported", checkUnsupported},
		{"bad work requests", checkBadRequests},
	}
}

// sizes touches every boundary that fabrics have: words, cache lines, inline,
// TCP segments, MTUs, 64 KiB frames, and one message of many frames.
var sizes = []int{0, 1, 2, 3, 4, 7, 8, 9, 31, 63, 64, 65, 127, 255, 256, 257, 1023, 1024, 1025, 1408, 1448, 1460, 1500,
	4095, 4096, 4097, 8960, 16384, 32767, 32768, 32769, 65487, 65535, 65536, 65537, 1 << 20}

func checkSendSizes(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{noAccess: true})
	for _, dir := range []struct {
		from, to   *end
		qfrom, qto rdma.QP
	}{{p.a, p.b, p.qa, p.qb}, {p.b, p.a, p.qb, p.qa}} {
		src := dir.from.region(1<<20, rdma.AccessLocalWrite)
		dst := dir.to.region(1<<20+64, rdma.AccessLocalWrite)
		for i, n := range sizes {
			fill(src.bytes()[:n], byte(i))
			fill(dst.bytes(), 0xee)
			guard := bytes.Clone(dst.bytes()[n:])
			into := dir.to.recv(dir.qto, dst.sge(0, 1<<20))
			sent := dir.from.post(dir.qfrom, send(src, 0, n))
			wc := dir.to.ok(into)
			if wc.Op != rdma.OpRecv || int(wc.ByteLen) != n || wc.QPN != dir.qto.QPN() {
				t.Errorf("SEND of %d from %s: receive completion %+v", n, dir.from.name, wc)
			}
			if swc := dir.from.ok(sent[0]); swc.Op != rdma.OpSend || swc.QPN != dir.qfrom.QPN() {
				t.Errorf("SEND of %d from %s: send completion %+v", n, dir.from.name, swc)
			}
			expectBytes(t, fmt.Sprintf("SEND of %d from %s", n, dir.from.name), dst.bytes()[:n], src.bytes()[:n])
			expectBytes(t, fmt.Sprintf("behind a SEND of %d", n), dst.bytes()[n:], guard)
		}
	}
}

// cut makes an SGL of odd pieces of n bytes in all, the order of the pieces
// reversed in memory, and returns the bytes that it names.
func cut(r *region, n, pieces int) (sgl []rdma.SGE, at [][]byte) {
	end := len(r.bytes())
	for i := range pieces {
		m := n / (pieces - i)
		if i+1 < pieces && m > 1 {
			m += i%3 - 1
		}
		end -= m + i%2 // gaps, odd offsets
		sgl = append(sgl, r.sge(end, m))
		at = append(at, r.bytes()[end:end+m])
		n -= m
	}
	return sgl, at
}

func checkSendSGL(t *testing.T, cfg *Config) {
	qc := rdma.QPConfig{}
	probe := newEnd(t, cfg, "probe")
	qc.Cap.MaxSGE = probe.attr.MaxSGE
	p := newPair(t, cfg, pairOptions{a: qc, b: qc, noAccess: true})
	src, dst := p.a.region(1<<18, rdma.AccessLocalWrite), p.b.region(1<<18, rdma.AccessLocalWrite)
	for _, n := range []int{0, 5, 16, 1000, 70001} {
		for _, from := range []int{1, 2, qc.Cap.MaxSGE} {
			for _, to := range []int{1, 3, qc.Cap.MaxSGE} {
				if to > qc.Cap.MaxSGE || from > qc.Cap.MaxSGE {
					continue
				}
				fill(src.bytes(), byte(n+from))
				gather, in := cut(src, n, from)
				scatter, out := cut(dst, n, to)
				id := p.b.recv(p.qb, scatter...)
				p.a.ok(p.a.post(p.qa, rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: gather})[0])
				p.b.ok(id)
				expectBytes(t, fmt.Sprintf("%d bytes from %d pieces to %d", n, from, to), bytes.Join(out, nil), bytes.Join(in, nil))
			}
		}
	}
}

func checkReadSizes(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	src := p.b.region(1<<20+128, rdma.AccessRemoteRead)
	sink := p.a.region(1<<20+128, rw(p.a))
	fill(src.bytes(), 3)
	for _, n := range sizes {
		for _, off := range []int{0, 8, 13} {
			fill(sink.bytes(), 0xcc)
			want := bytes.Clone(sink.bytes())
			copy(want[off:], src.bytes()[off:off+n])
			wc := p.a.ok(p.a.post(p.qa, read(sink, off, src.remote(off), n))[0])
			if wc.Op != rdma.OpRDMARead || int(wc.ByteLen) != n {
				t.Errorf("READ of %d: completion %+v", n, wc)
			}
			expectBytes(t, fmt.Sprintf("READ of %d at %d", n, off), sink.bytes(), want)
		}
	}
}

func checkReadSGL(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	src := p.b.region(1<<17, rdma.AccessRemoteRead)
	sink := p.a.region(1<<18, rw(p.a))
	fill(src.bytes(), 9)
	for _, n := range []int{1, 40, 4096, 100003} {
		for _, pieces := range []int{1, 2, 4} {
			sgl, at := cut(sink, n, pieces)
			wr := rdma.SendWR{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: sgl, Remote: src.remote(24)}
			id := p.a.id()
			wr.ID = id
			if took, err := p.a.tryPost(p.qa, []rdma.SendWR{wr}); took == 0 {
				// Not every device takes a READ sink of several pieces; one
				// that does not must say so, and must not fail the connection.
				if pieces == 1 || !isAny(err, rdma.ErrInvalid, rdma.ErrNotSupported) {
					t.Errorf("READ into %d pieces: %v", pieces, err)
				}
				continue
			}
			p.a.ok(id)
			expectBytes(t, fmt.Sprintf("READ of %d into %d pieces", n, pieces), bytes.Join(at, nil), src.bytes()[24:24+n])
		}
	}
}

// checkReadWords: a READ that meets a writer is torn between words at most,
// never inside one. With Mmap only chance hits a word in the middle; with
// Heap the race detector sees any plain load of what is stored atomically.
func checkReadWords(t *testing.T, cfg *Config) {
	const size, enough, most = 4096, 300, time.Second
	p := newPair(t, cfg, pairOptions{})
	src := p.b.region(size, rdma.AccessRemoteRead)
	sink := p.a.region(size, rw(p.a))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	memory := src.bytes()
	wg.Go(func() {
		for v := uint64(0); ; v++ {
			for off := 0; off < size; off += 8 {
				storeWord(memory, off, v%256*0x0101010101010101)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	mixed := 0 // READs that saw more than one round of the writer
	for start := time.Now(); mixed < enough && time.Since(start) < most; {
		p.a.ok(p.a.post(p.qa, read(sink, 0, src.remote(0), size))[0])
		first := binary.NativeEndian.Uint64(sink.bytes())
		met := 0
		for off := 0; off < size; off += 8 {
			w := binary.NativeEndian.Uint64(sink.bytes()[off:])
			if w%0x0101010101010101 != 0 {
				t.Fatalf("the word at %d is torn: %#016x", off, w)
			}
			if w != first {
				met = 1
			}
		}
		mixed += met
	}
	t.Logf("%d READs met the writer", mixed)
}

func checkWrite(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	src := p.a.region(1<<20+128, rdma.AccessLocalWrite)
	if !p.a.has(rdma.CapWrite) {
		n, err := p.a.tryPost(p.qa, []rdma.SendWR{{Op: rdma.OpRDMAWrite, SGL: []rdma.SGE{src.sge(0, 8)}}})
		if n != 0 || !errors.Is(err, rdma.ErrNotSupported) {
			t.Errorf("WRITE without CapWrite: %d, %v", n, err)
		}
		return
	}
	dst := p.b.region(1<<20+128, rw(p.b))
	for i, n := range sizes {
		off := i % 16
		fill(src.bytes(), byte(i))
		fill(dst.bytes(), 0xdd)
		want := bytes.Clone(dst.bytes())
		copy(want[off:], src.bytes()[:n])
		// The SEND behind the WRITE tells b when to look: the request that was
		// posted first is placed first.
		id := p.b.recv(p.qb)
		wr := rdma.SendWR{Op: rdma.OpRDMAWrite, Flags: rdma.SendSignaled, Remote: dst.remote(off)}
		if n > 0 {
			wr.SGL = []rdma.SGE{src.sge(0, n)}
		}
		ids := p.a.post(p.qa, wr, send(src, 0, 0))
		if wc := p.a.ok(ids[0]); wc.Op != rdma.OpRDMAWrite {
			t.Errorf("WRITE of %d: completion %+v", n, wc)
		}
		p.a.ok(ids[1])
		p.b.ok(id)
		expectBytes(t, fmt.Sprintf("WRITE of %d at %d", n, off), dst.bytes(), want)
	}
}

func checkInline(t *testing.T, cfg *Config) {
	probe := newEnd(t, cfg, "probe")
	if !probe.has(rdma.CapInline) {
		p := newPair(t, cfg, pairOptions{})
		n, err := p.a.tryPost(p.qa, []rdma.SendWR{{Op: rdma.OpSend, Flags: rdma.SendInline, Inline: []byte("x")}})
		if n != 0 || !isAny(err, rdma.ErrNotSupported, rdma.ErrInvalid) {
			t.Errorf("inline without CapInline: %d, %v", n, err)
		}
		return
	}
	limit := min(probe.attr.MaxInline, 128)
	p := newPair(t, cfg, pairOptions{a: rdma.QPConfig{Cap: rdma.QPCap{MaxInline: limit}}})
	dst := p.b.region(1<<12, rdma.AccessLocalWrite)
	for _, n := range []int{0, 1, 8, limit} {
		payload := make([]byte, n)
		fill(payload, byte(n))
		want := bytes.Clone(payload)
		id := p.b.recv(p.qb, dst.sge(0, 1<<12))
		ids := p.a.post(p.qa, rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: payload})
		fill(payload, 0xff) // ours again as soon as PostSend has returned
		if wc := p.b.ok(id); int(wc.ByteLen) != n {
			t.Errorf("inline SEND of %d: %d received", n, wc.ByteLen)
		}
		p.a.ok(ids[0])
		expectBytes(t, fmt.Sprintf("inline SEND of %d", n), dst.bytes()[:n], want)
	}
	// The same while the request cannot leave yet: a fence holds it behind a
	// large READ.
	big := p.b.region(1<<20, rdma.AccessRemoteRead)
	sink := p.a.region(1<<20, rw(p.a))
	payload := []byte("as it was when posted")
	want := bytes.Clone(payload)
	into := p.b.recv(p.qb, dst.sge(0, 1<<12))
	held := rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled | rdma.SendInline | rdma.SendFence, Inline: payload}
	ids := p.a.post(p.qa, read(sink, 0, big.remote(0), 1<<20), held)
	fill(payload, 0xff)
	p.b.ok(into)
	p.a.ok(ids[1])
	expectBytes(t, "inline SEND behind a fence", dst.bytes()[:len(want)], want)
	if p.a.has(rdma.CapWrite) {
		target := p.b.region(64, rw(p.b))
		id := p.b.recv(p.qb)
		p.a.ok(p.a.post(p.qa,
			rdma.SendWR{Op: rdma.OpRDMAWrite, Flags: rdma.SendInline, Inline: []byte("12345678"), Remote: target.remote(8)},
			send(dst, 0, 0))[1])
		p.b.ok(id)
		expectBytes(t, "inline WRITE", target.bytes()[8:16], []byte("12345678"))
	}
	n, err := p.a.tryPost(p.qa, []rdma.SendWR{{Op: rdma.OpSend, Flags: rdma.SendInline, Inline: make([]byte, probe.attr.MaxInline+1)}})
	if n != 0 || !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("inline beyond the limit: %d, %v", n, err)
	}
}

// checkFence: a SEND of what a READ brings. Without the fence it could leave
// with the old bytes.
func checkFence(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	const size = 1 << 19
	src := p.b.region(size, rdma.AccessRemoteRead)
	via := p.a.region(size, rw(p.a))
	dst := p.b.region(size, rdma.AccessLocalWrite)
	for round := range 4 {
		fill(src.bytes(), byte(round))
		id := p.b.recv(p.qb, dst.sge(0, size))
		fenced := send(via, 0, size)
		fenced.Flags |= rdma.SendFence
		ids := p.a.post(p.qa, read(via, 0, src.remote(0), size), fenced)
		p.a.ok(ids[1])
		p.b.ok(id)
		expectBytes(t, "fenced SEND", dst.bytes(), src.bytes())
	}
}
