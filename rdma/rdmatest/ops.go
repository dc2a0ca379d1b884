package rdmatest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

func deviceChecks() []check {
	return []check{
		{"names", checkNames},
		{"attributes", checkAttributes},
		{"arguments", checkArguments},
	}
}

func checkNames(t *testing.T, cfg *Config) {
	f := cfg.New(t)
	ctx := context.Background()
	if f.Name() == "" || strings.ToLower(f.Name()) != f.Name() {
		t.Errorf("fabric name %q is no configuration word", f.Name())
	}
	list, err := f.Devices(ctx)
	if err != nil || len(list) == 0 {
		t.Fatalf("Devices: %v, %v", list, err)
	}
	for _, info := range list {
		dev, err := f.Open(ctx, info.Name)
		if err != nil {
			t.Errorf("Open(%q), which Devices lists: %v", info.Name, err)
			continue
		}
		if dev.Name() != info.Name || dev.Attr().Fabric != f.Name() {
			t.Errorf("opened %q of %q, got %q of %q", info.Name, f.Name(), dev.Name(), dev.Attr().Fabric)
		}
		for range 2 {
			if err := dev.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if _, err := dev.AllocPD(); !errors.Is(err, rdma.ErrClosed) {
			t.Errorf("AllocPD on a closed device: %v", err)
		}
	}
	dev, err := f.Open(ctx, "no-such-device")
	if dev != nil || !errors.Is(err, rdma.ErrNoDevice) || !strings.Contains(err.Error(), list[0].Name) {
		t.Errorf("Open of a device that does not exist: %v, %v; want ErrNoDevice and the list", dev, err)
	}
	dev, err = f.Open(ctx, "")
	if err != nil {
		t.Fatalf("Open(\"\"): %v", err)
	}
	if dev.Attr().Reason == "" {
		t.Error("the fabric chose a device and does not say why")
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

func checkAttributes(t *testing.T, cfg *Config) {
	e := newEnd(t, cfg, "a")
	at := e.attr
	for _, c := range []struct {
		name     string
		got, min int
	}{
		{"MaxQP", at.MaxQP, 1}, {"MaxQPWR", at.MaxQPWR, 16}, {"MaxSGE", at.MaxSGE, 1}, {"MaxCQ", at.MaxCQ, 1},
		{"MaxCQE", at.MaxCQE, 16}, {"MaxMR", at.MaxMR, 1}, {"MaxPD", at.MaxPD, 1}, {"MaxQPRdAtom", at.MaxQPRdAtom, 1},
		{"MaxQPInitRdAtom", at.MaxQPInitRdAtom, 1}, {"MaxConnectPrivate", at.MaxConnectPrivate, rdma.PrivateDataMax},
		{"MaxAcceptPrivate", at.MaxAcceptPrivate, 148}, {"MaxMsgSize", int(at.MaxMsgSize), 1 << 20},
	} {
		if c.got < c.min {
			t.Errorf("%s is %d, below %d", c.name, c.got, c.min)
		}
	}
	if e.has(rdma.CapSRQ) && (at.MaxSRQ < 1 || at.MaxSRQWR < 1) || e.has(rdma.CapInline) && at.MaxInline < 1 {
		t.Errorf("capability without a limit: %+v", at)
	}
	if !e.has(cfg.Want) {
		t.Errorf("capabilities %b, the fabric promised %b", at.Caps, cfg.Want)
	}
	if e.pd.Device() != e.dev {
		t.Error("PD.Device is another device")
	}
	r := e.region(100, rw(e))
	if r.mr.PD() != e.pd || r.mr.Len() != 100 || len(r.mr.Bytes()) != 100 || r.mr.Access() != rw(e) {
		t.Errorf("MR: PD same %v, Len %d, Bytes %d, Access %b", r.mr.PD() == e.pd, r.mr.Len(), len(r.mr.Bytes()), r.mr.Access())
	}
	if &r.mr.Bytes()[0] != &r.bytes()[0] {
		t.Error("MR.Bytes is not the memory that was registered")
	}
	if r.mr.RKey() == 0 {
		t.Error("a region with remote rights has rkey 0")
	}
	if local := e.region(8, rdma.AccessLocalWrite); local.mr.RKey() != 0 {
		t.Errorf("a region without remote rights has rkey %#x", local.mr.RKey())
	}
	// Keys are not reused or guessable in a row.
	seen := map[uint32]bool{}
	for range 64 {
		mr, err := e.pd.RegMR(r.bytes(), rdma.AccessRemoteRead)
		e.check("RegMR", err)
		if seen[mr.RKey()] {
			t.Fatalf("rkey %#x given twice", mr.RKey())
		}
		seen[mr.RKey()] = true
		e.check("MR.Close", mr.Close())
	}
}

// checkArguments: each wrong argument is refused as what it is.
func checkArguments(t *testing.T, cfg *Config) {
	e := newEnd(t, cfg, "a")
	other := newEnd(t, cfg, "other device")
	buf := e.region(64, rdma.AccessLocalWrite).bytes()
	qp := func(cfg rdma.QPConfig) error {
		q, err := e.pd.CreateQP(cfg)
		if q != nil && err == nil {
			_ = q.Close() // refused or not, nothing stays
		}
		return err
	}
	capped := func(c rdma.QPCap) rdma.QPConfig { return rdma.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, Cap: c} }
	reg := func(b []byte, a rdma.Access) error { _, err := e.pd.RegMR(b, a); return err }
	cq := func(n int) error { _, err := e.dev.CreateCQ(n); return err }
	type bad struct {
		name string
		err  error
		want error
	}
	list := []bad{
		{"MR of 0 bytes", reg(nil, rdma.AccessLocalWrite), rdma.ErrInvalid},
		{"remote write without local write", reg(buf, rdma.AccessRemoteWrite), rdma.ErrInvalid},
		{"unknown right on an MR", reg(buf, 1<<30), rdma.ErrInvalid},
		{"CQ depth 0", cq(0), rdma.ErrInvalid},
		{"CQ depth -1", cq(-1), rdma.ErrInvalid},
		{"CQ depth beyond the limit", cq(e.attr.MaxCQE + 1), rdma.ErrInvalid},
		{"QP without CQs", qp(rdma.QPConfig{}), rdma.ErrInvalid},
		{"QP with the CQ of another device", qp(rdma.QPConfig{SendCQ: e.cq, RecvCQ: other.cq}), rdma.ErrInvalid},
		{"MaxSendWR", qp(capped(rdma.QPCap{MaxSendWR: e.attr.MaxQPWR + 1})), rdma.ErrInvalid},
		{"MaxRecvWR", qp(capped(rdma.QPCap{MaxRecvWR: e.attr.MaxQPWR + 1})), rdma.ErrInvalid},
		{"MaxSGE", qp(capped(rdma.QPCap{MaxSGE: e.attr.MaxSGE + 1})), rdma.ErrInvalid},
		{"MaxInline", qp(capped(rdma.QPCap{MaxInline: e.attr.MaxInline + 1})), rdma.ErrInvalid},
		{"MaxSendWR negative", qp(capped(rdma.QPCap{MaxSendWR: -1})), rdma.ErrInvalid},
	}
	if !e.has(rdma.CapAtomics) {
		list = append(list, bad{"atomics on an MR", reg(buf, rdma.AccessRemoteAtomic|rdma.AccessLocalWrite), rdma.ErrNotSupported})
	}
	if e.has(rdma.CapSRQ) {
		srq := func(n int) error { _, err := e.pd.CreateSRQ(n); return err }
		list = append(list, bad{"SRQ of 0", srq(0), rdma.ErrInvalid}, bad{"SRQ too large", srq(e.attr.MaxSRQWR + 1), rdma.ErrInvalid})
	} else {
		_, err := e.pd.CreateSRQ(16)
		list = append(list, bad{"SRQ", err, rdma.ErrNotSupported})
	}
	for _, b := range list {
		if !errors.Is(b.err, b.want) {
			t.Errorf("%s: %v, want %v", b.name, b.err, b.want)
		}
	}
}

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
				// A READ sink of several pieces is not for every device; it
				// must say so, not fail the connection.
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
// never inside one.
func checkReadWords(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	const size = 4096
	src := p.b.region(size, rdma.AccessRemoteRead)
	sink := p.a.region(size, rw(p.a))
	stop := make(chan struct{})
	var wg sync.WaitGroup
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
	for range 300 {
		p.a.ok(p.a.post(p.qa, read(sink, 0, src.remote(0), size))[0])
		for off := 0; off < size; off += 8 {
			if w := binary.NativeEndian.Uint64(sink.bytes()[off:]); w%0x0101010101010101 != 0 {
				t.Fatalf("the word at %d is torn: %#016x", off, w)
			}
		}
	}
	close(stop)
	wg.Wait()
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
		// The SEND behind the WRITE tells b when to look: what was posted
		// first is placed first.
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

// checkSignaling: unsignaled work completes silently, and its room in the send
// queue comes back with the next signaled completion.
func checkSignaling(t *testing.T, cfg *Config) {
	const depth = 16
	p := newPair(t, cfg, pairOptions{a: rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: depth}}})
	src, sink := p.b.region(4096, rdma.AccessRemoteRead), p.a.region(4096, rw(p.a))
	for round := range 20 {
		fill(src.bytes(), byte(round))
		var wrs []rdma.SendWR
		for i := range depth {
			wr := read(sink, i*256, src.remote(i*256), 256)
			if i < depth-1 {
				wr.Flags = 0
			}
			wrs = append(wrs, wr)
		}
		ids := p.a.post(p.qa, wrs...)
		p.a.ok(ids[depth-1])
		expectBytes(t, "READs", sink.bytes(), src.bytes())
	}
}

func checkSignalAll(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{a: rdma.QPConfig{SignalAll: true}})
	p.a.signalAll = true
	src, sink := p.b.region(64, rdma.AccessRemoteRead), p.a.region(64, rw(p.a))
	silent := read(sink, 0, src.remote(0), 64)
	silent.Flags = 0
	p.a.ok(p.a.post(p.qa, silent)[0])
}

// checkOrder: send completions come in the order of posting, whatever the mix
// and however long the first takes.
func checkOrder(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	const size = 1 << 20
	src, sink := p.b.region(size, rdma.AccessRemoteRead), p.a.region(size, rw(p.a))
	dst := p.b.region(64, rdma.AccessLocalWrite)
	var want []uint64
	for round := range 10 {
		for range 3 {
			p.b.recv(p.qb, dst.sge(0, 64))
		}
		wrs := []rdma.SendWR{
			read(sink, 0, src.remote(0), size>>(round%4*4)),
			send(sink, 0, 32),
			read(sink, 8, src.remote(8), 8),
			send(sink, 0, 0),
			send(sink, 0, 64),
			read(sink, 0, src.remote(0), 100),
		}
		want = append(want, p.a.post(p.qa, wrs...)...)
	}
	p.a.ok(want[len(want)-1])
	for i, id := range want {
		if p.a.order[i] != id {
			t.Fatalf("completion %d is of %d, want %d", i, p.a.order[i], id)
		}
	}
}

func checkBatches(t *testing.T, cfg *Config) {
	const depth, rounds = 512, 8
	big := rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: depth, MaxRecvWR: depth}}
	p := newPair(t, cfg, pairOptions{a: big, b: big})
	src, sink := p.b.region(depth*8, rdma.AccessRemoteRead), p.a.region(depth*8, rw(p.a))
	dst := p.b.region(depth*8, rdma.AccessLocalWrite)
	for round := range rounds {
		fill(src.bytes(), byte(round))
		var reads, sends []rdma.SendWR
		var recvs []uint64
		for i := range depth {
			reads = append(reads, read(sink, i*8, src.remote(i*8), 8))
			recvs = append(recvs, p.b.recv(p.qb, dst.sge(i*8, 8)))
			sends = append(sends, send(sink, i*8, 8))
		}
		for _, id := range p.a.post(p.qa, reads...) {
			p.a.ok(id)
		}
		expectBytes(t, "batch of READs", sink.bytes(), src.bytes())
		for _, id := range p.a.post(p.qa, sends...) {
			p.a.ok(id)
		}
		for _, id := range recvs {
			p.b.ok(id)
		}
		expectBytes(t, "batch of SENDs", dst.bytes(), src.bytes())
	}
	if n, err := p.qa.PostSend(nil); n != 0 || err != nil {
		t.Errorf("an empty batch: %d, %v", n, err)
	}
}

func checkSolicited(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	buf := p.a.region(8, rdma.AccessLocalWrite)
	for _, solicited := range []bool{false, true} {
		id := p.b.recv(p.qb)
		wr := send(buf, 0, 0)
		if solicited {
			wr.Flags |= rdma.SendSolicited
		}
		p.a.ok(p.a.post(p.qa, wr)[0])
		if got := p.b.ok(id).Flags&rdma.WCSolicited != 0; got != solicited {
			t.Errorf("solicited %v: completion says %v", solicited, got)
		}
	}
}

// checkUnsupported: what the device cannot do is refused at the post, and the
// connection lives on.
func checkUnsupported(t *testing.T, cfg *Config) {
	p := newPair(t, cfg, pairOptions{})
	r := p.a.region(64, rw(p.a))
	for _, c := range []struct {
		op   rdma.Opcode
		need rdma.Caps
	}{
		{rdma.OpAtomicCmpSwap, rdma.CapAtomics}, {rdma.OpAtomicFetchAdd, rdma.CapAtomics},
		{rdma.OpSendInv, rdma.CapInvalidate}, {rdma.OpLocalInv, rdma.CapInvalidate}, {rdma.OpBindWindow, rdma.CapWindows},
	} {
		if p.a.has(c.need) {
			continue // what it can do has checks of its own
		}
		n, err := p.a.tryPost(p.qa, []rdma.SendWR{{Op: c.op, SGL: []rdma.SGE{r.sge(0, 8)}, Remote: r.remote(0)}})
		if n != 0 || !errors.Is(err, rdma.ErrNotSupported) {
			t.Errorf("%v without the capability: %d, %v", c.op, n, err)
		}
	}
	for _, op := range []rdma.Opcode{0, rdma.OpRecv, 200} {
		n, err := p.a.tryPost(p.qa, []rdma.SendWR{{Op: op}})
		if n != 0 || !isAny(err, rdma.ErrInvalid, rdma.ErrNotSupported) {
			t.Errorf("opcode %v: %d, %v", op, n, err)
		}
	}
	p.stillWorks()
}

// checkBadRequests: a request that is wrong in itself is refused at the post
// (ErrInvalid), or fails as a local error and takes its connection with it, as
// in hardware. It never touches memory that it may not.
func checkBadRequests(t *testing.T, cfg *Config) {
	const size = 256
	type request func(p *pair, src *region) rdma.SendWR
	sge := func(p *pair, r *region) func(off uint64, n uint32) rdma.SendWR {
		return func(off uint64, n uint32) rdma.SendWR {
			return rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: r.mr, Off: off, Len: n}}}
		}
	}
	cases := []struct {
		name string
		make request
	}{
		{"SGE behind the end", func(p *pair, r *region) rdma.SendWR { return sge(p, r)(size, 8) }},
		{"SGE across the end", func(p *pair, r *region) rdma.SendWR { return sge(p, r)(size-4, 8) }},
		{"SGE offset overflows", func(p *pair, r *region) rdma.SendWR { return sge(p, r)(^uint64(0)-3, 8) }},
		{"SGE without MR", func(p *pair, r *region) rdma.SendWR {
			return rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{Len: 8}}}
		}},
		{"closed MR", func(p *pair, r *region) rdma.SendWR {
			gone := p.a.region(size, rdma.AccessLocalWrite)
			p.a.check("MR.Close", gone.mr.Close())
			return send(gone, 0, 8)
		}},
		{"MR of another PD", func(p *pair, r *region) rdma.SendWR {
			pd, err := p.a.dev.AllocPD()
			p.a.check("AllocPD", err)
			p.a.closeLater("other PD", pd.Close)
			return send(p.a.regionIn(pd, size, rdma.AccessLocalWrite), 0, 8)
		}},
		{"READ sink without local write", func(p *pair, r *region) rdma.SendWR {
			return read(p.a.region(size, rdma.AccessRemoteRead), 0, r.remote(0), 8)
		}},
		{"too many SGEs", func(p *pair, r *region) rdma.SendWR {
			return rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled,
				SGL: slicesRepeat(r.sge(0, 1), p.a.attr.MaxSGE+1)}
		}},
		{"longer than a message may be", func(p *pair, r *region) rdma.SendWR {
			return rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled,
				SGL: []rdma.SGE{{MR: r.mr, Len: p.a.attr.MaxMsgSize}, {MR: r.mr, Len: p.a.attr.MaxMsgSize}}}
		}},
		{"inline and an SGL", func(p *pair, r *region) rdma.SendWR {
			return rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte{1}, SGL: []rdma.SGE{r.sge(0, 1)}}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, cfg, pairOptions{})
			src := p.a.region(size, rw(p.a))
			dst := p.b.region(1<<16, rdma.AccessLocalWrite)
			fill(dst.bytes(), 1)
			want := bytes.Clone(dst.bytes())
			p.b.recv(p.qb, dst.sge(0, 1<<16))
			wr := c.make(p, src)
			wr.ID = p.a.id()
			n, err := p.a.tryPost(p.qa, []rdma.SendWR{wr})
			if n == 0 {
				if !isAny(err, rdma.ErrInvalid, rdma.ErrLocal, rdma.ErrNotSupported) {
					t.Errorf("refused with %v", err)
				}
				select {
				case <-p.qa.Done():
					t.Errorf("the refusal took the QP with it: %v", p.qa.Err())
				default:
				}
			} else {
				p.a.class(wr.ID, rdma.ErrLocal)
				p.a.expectDone(p.qa, rdma.ErrLocal)
				p.b.expectDone(p.qb, rdma.ErrPeerGone, rdma.ErrProtocol, rdma.ErrLocal, rdma.ErrAccess)
			}
			expectBytes(t, "the peer's buffer", dst.bytes(), want)
		})
	}
	t.Run("before the connection", func(t *testing.T) {
		e := newEnd(t, cfg, "a")
		qp := e.qp(rdma.QPConfig{})
		buf := e.region(64, rdma.AccessLocalWrite)
		if n, err := e.tryPost(qp, []rdma.SendWR{send(buf, 0, 8)}); n != 0 || !errors.Is(err, rdma.ErrNotConnected) {
			t.Errorf("PostSend in state INIT: %d, %v", n, err)
		}
		if s := qp.State(); s != rdma.QPInit {
			t.Errorf("state %v, want INIT", s)
		}
		if qp.Err() != nil {
			t.Errorf("Err %v", qp.Err())
		}
	})
}

func slicesRepeat(s rdma.SGE, n int) []rdma.SGE {
	list := make([]rdma.SGE, n)
	for i := range list {
		list[i] = s
	}
	return list
}
