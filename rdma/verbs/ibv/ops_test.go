//go:build linux && cgo

package ibv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
)

func TestSendRecv(t *testing.T) {
	b := newBed(t, options{})
	copy(b.mem, "hello, queue pair")
	receive(t, b.b, b.recv(70, 4096, 64))
	send(t, b.a, SendWR{ID: 60, Op: WRSend, Flags: SendSignaled, NumSGE: 1, SGL: b.sge(0, 17)})
	if wc := one(t, b.cqA, StatusSuccess); wc.ID != 60 || wc.Opcode != WCSend || wc.QPN != b.a.Num() {
		t.Errorf("send completion %+v", wc)
	}
	wc := one(t, b.cqB, StatusSuccess)
	if wc.ID != 70 || wc.Opcode != WCRecv || wc.ByteLen != 17 || wc.QPN != b.b.Num() || wc.Flags&WCFlagWithImm != 0 {
		t.Errorf("receive completion %+v", wc)
	}
	if got := string(b.mem[4096 : 4096+18]); got != "hello, queue pair\x00" {
		t.Errorf("received %q", got)
	}
}

func TestSendImmAndGather(t *testing.T) {
	b := newBed(t, options{})
	copy(b.mem, "abcdefgh")
	receive(t, b.b, RecvWR{ID: 1, NumSGE: 2, SGL: [MaxSGE]SGE{b.sge(1000, 3)[0], b.sge(2000, 61)[0]}})
	send(t, b.a, SendWR{ID: 2, Op: WRSendImm, Flags: SendSignaled | SendSolicited, ImmInv: 0xdeadbeef, NumSGE: 3,
		SGL: [MaxSGE]SGE{b.sge(6, 2)[0], b.sge(0, 3)[0], b.sge(3, 3)[0]}})
	one(t, b.cqA, StatusSuccess)
	wc := one(t, b.cqB, StatusSuccess)
	if wc.ByteLen != 8 || wc.Flags&WCFlagWithImm == 0 || wc.ImmInv != 0xdeadbeef {
		t.Errorf("receive completion %+v", wc)
	}
	if got := string(b.mem[1000:1003]) + string(b.mem[2000:2005]); got != "ghabcdef" {
		t.Errorf("gathered and scattered %q", got)
	}
}

func TestReadWriteInline(t *testing.T) {
	b := newBed(t, options{})
	for i := range 4096 {
		b.mem[i] = byte(i*7 + i>>8)
	}
	send(t, b.a, b.read(1, 8192, 0, 4096))
	if wc := one(t, b.cqA, StatusSuccess); wc.Opcode != WCRDMARead || wc.ID != 1 {
		t.Errorf("READ completion %+v", wc)
	}
	if !bytes.Equal(b.mem[8192:8192+4096], b.mem[:4096]) {
		t.Error("READ brought other bytes")
	}
	send(t, b.a, SendWR{ID: 2, Op: WRRDMAWrite, Flags: SendSignaled, RKey: b.mr.RKey,
		RemoteAddr: addrOf(b.mem) + 20000, NumSGE: 1, SGL: b.sge(100, 1000)})
	if wc := one(t, b.cqA, StatusSuccess); wc.Opcode != WCRDMAWrite {
		t.Errorf("WRITE completion %+v", wc)
	}
	if !bytes.Equal(b.mem[20000:21000], b.mem[100:1100]) {
		t.Error("WRITE put other bytes")
	}
	// Inline: the memory needs no key and may change once the call returned.
	own := pages(t, 4096)
	copy(own, "inline data")
	wr := SendWR{ID: 3, Op: WRRDMAWrite, Flags: SendSignaled | SendInline, RKey: b.mr.RKey,
		RemoteAddr: addrOf(b.mem) + 30000, NumSGE: 1, SGL: [MaxSGE]SGE{{Addr: addrOf(own), Len: 11}}}
	send(t, b.a, wr)
	clear(own)
	one(t, b.cqA, StatusSuccess)
	if got := string(b.mem[30000:30011]); got != "inline data" {
		t.Errorf("inline WRITE put %q", got)
	}
}

func TestWriteImm(t *testing.T) {
	b := newBed(t, options{})
	copy(b.mem, "with a note")
	receive(t, b.b, RecvWR{ID: 9})
	send(t, b.a, SendWR{ID: 1, Op: WRRDMAWriteImm, Flags: SendSignaled, RKey: b.mr.RKey, ImmInv: 42,
		RemoteAddr: addrOf(b.mem) + 512, NumSGE: 1, SGL: b.sge(0, 11)})
	one(t, b.cqA, StatusSuccess)
	wc := one(t, b.cqB, StatusSuccess)
	if wc.Opcode != WCRecvRDMAWithImm || wc.ImmInv != 42 || wc.Flags&WCFlagWithImm == 0 || string(b.mem[512:523]) != "with a note" {
		t.Errorf("completion %+v, memory %q", wc, b.mem[512:523])
	}
}

func TestAtomics(t *testing.T) {
	b := newBed(t, options{})
	word := func(off int) uint64 { return binary.NativeEndian.Uint64(b.mem[off:]) }
	binary.NativeEndian.PutUint64(b.mem[64:], 40)
	atomic := func(id uint64, op Opcode, compareAdd, swap uint64) WC {
		t.Helper()
		send(t, b.a, SendWR{ID: id, Op: op, Flags: SendSignaled, RKey: b.mr.RKey, RemoteAddr: addrOf(b.mem) + 64,
			CompareAdd: compareAdd, Swap: swap, NumSGE: 1, SGL: b.sge(128, 8)})
		return one(t, b.cqA, StatusSuccess)
	}
	if wc := atomic(1, WRAtomicFetchAdd, 2, 0); wc.Opcode != WCFetchAdd || word(64) != 42 || word(128) != 40 {
		t.Errorf("%+v: word %d, fetched %d", wc, word(64), word(128))
	}
	if wc := atomic(2, WRAtomicCmpSwp, 42, 7); wc.Opcode != WCCompSwap || word(64) != 7 || word(128) != 42 {
		t.Errorf("%+v: word %d, fetched %d", wc, word(64), word(128))
	}
	if atomic(3, WRAtomicCmpSwp, 42, 9); word(64) != 7 || word(128) != 7 {
		t.Errorf("compare failed: word %d, fetched %d", word(64), word(128))
	}
}

// TestBatches: more requests than the shim chains at once, in one call, and
// completions in order.
func TestBatches(t *testing.T) {
	b := newBed(t, options{})
	for i := range 100 {
		binary.NativeEndian.PutUint64(b.mem[i*8:], uint64(i)+1000)
	}
	for round := range 5 {
		clear(b.mem[8192:9000])
		wrs := make([]SendWR, 100)
		for i := range wrs {
			wrs[i] = b.read(uint64(i), 8192+i*8, i*8, 8)
		}
		send(t, b.a, wrs...)
		for i, wc := range drain(t, b.cqA, 100) {
			if wc.ID != uint64(i) || wc.Status != StatusSuccess {
				t.Fatalf("round %d: completion %d is %+v", round, i, wc)
			}
		}
		if !bytes.Equal(b.mem[8192:8992], b.mem[:800]) {
			t.Fatalf("round %d: other bytes", round)
		}
	}
	rwrs := make([]RecvWR, 100)
	swrs := make([]SendWR, 100)
	for i := range rwrs {
		rwrs[i] = b.recv(uint64(i), 16384+i*8, 8)
		swrs[i] = SendWR{ID: uint64(i), Op: WRSend, NumSGE: 1, SGL: b.sge(i*8, 8)} // unsignaled
	}
	swrs[99].Flags = SendSignaled
	receive(t, b.b, rwrs...)
	send(t, b.a, swrs...)
	if wc := one(t, b.cqA, StatusSuccess); wc.ID != 99 {
		t.Errorf("the signaled request is 99: %+v", wc)
	}
	for i, wc := range drain(t, b.cqB, 100) {
		if wc.ID != uint64(i) || wc.ByteLen != 8 {
			t.Fatalf("receive %d is %+v", i, wc)
		}
	}
	if !bytes.Equal(b.mem[16384:16384+800], b.mem[:800]) {
		t.Error("SENDs brought other bytes")
	}
	if n, err := b.cqA.Poll(make([]WC, 4)); n != 0 || err != nil {
		t.Errorf("unsignaled requests completed: %d, %v", n, err)
	}
}

// TestBatchStopsAtTheFirstBad: what is posted and what is not.
func TestBatchStopsAtTheFirstBad(t *testing.T) {
	for _, bad := range []int{0, 3, 64, 99} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			b := newBed(t, options{})
			wrs := make([]SendWR, 100)
			rwrs := make([]RecvWR, 100)
			for i := range wrs {
				wrs[i] = b.read(uint64(i), 8192, 0, 8)
				rwrs[i] = b.recv(uint64(i), 0, 8)
			}
			wrs[bad].NumSGE = MaxSGE + 1
			rwrs[bad].NumSGE = MaxSGE + 1
			if n, err := b.a.PostSend(wrs); n != bad || !isInval(err) {
				t.Fatalf("posted %d, %v", n, err)
			}
			for i, wc := range drain(t, b.cqA, bad) {
				if wc.ID != uint64(i) || wc.Status != StatusSuccess {
					t.Fatalf("completion %d is %+v", i, wc)
				}
			}
			if n, err := b.a.PostRecv(rwrs); n != bad || !isInval(err) {
				t.Fatalf("posted %d, %v", n, err)
			}
		})
	}
}

// TestQueueFull: a full send queue is ENOMEM, with the number of those posted.
func TestQueueFull(t *testing.T) {
	b := newBed(t, options{depth: 16})
	wrs := make([]SendWR, 200)
	for i := range wrs {
		wrs[i] = b.read(uint64(i), 8192, 0, 8)
	}
	n, err := b.a.PostSend(wrs)
	if err == nil || n < 16 || n >= 200 {
		t.Fatalf("posted %d, %v", n, err)
	}
	t.Log(n, err)
	drain(t, b.cqA, min(n, 32))
}

func TestPostSendSpin(t *testing.T) {
	b := newBed(t, options{})
	b.mem[0] = 99
	wcs := make([]WC, 4)
	posted, got, err := b.a.PostSendSpin([]SendWR{b.read(5, 4096, 0, 8)}, b.cqA, wcs, MaxSpin)
	if posted != 1 || err != nil {
		t.Fatal(posted, got, err)
	}
	if got == 0 { // a loaded machine may take longer than MaxSpin
		wcs = drain(t, b.cqA, 1)
	}
	if wcs[0].ID != 5 || wcs[0].Status != StatusSuccess || b.mem[4096] != 99 {
		t.Fatalf("%+v", wcs[0])
	}
}

// TestDataPathDoesNotAllocate pins what the package promises.
func TestDataPathDoesNotAllocate(t *testing.T) {
	b := newBed(t, options{})
	swr := []SendWR{b.read(1, 4096, 0, 8)}
	rwr := []RecvWR{b.recv(1, 0, 8)}
	wcs := make([]WC, 4)
	posted := 0
	n := testing.AllocsPerRun(100, func() {
		if posted++; posted < 100 {
			b.b.PostRecv(rwr)
		}
		b.a.PostSend(swr)
		for {
			if n, err := b.cqA.Poll(wcs); n > 0 || err != nil {
				break
			}
		}
		b.a.PostSendSpin(swr, b.cqA, wcs[:1], MaxSpin)
		b.cqA.Spin(wcs, 0)
		b.cqB.ReqNotify(false)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
