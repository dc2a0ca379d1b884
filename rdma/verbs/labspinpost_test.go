//go:build linux

package verbs_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// TestPostSendSpin: what PostSend does, and the completion comes along, or is
// there for the next poll. What is refused is refused as by PostSend.
func TestPostSendSpin(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		r := newRig(t, opts)
		qa, _ := r.connect(rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: 64}}, rdma.QPConfig{Access: rdma.AccessRemoteRead}, rdma.ConnParams{})
		from := r.region(4096, mem.Mmap, rdma.AccessRemoteRead)
		sink := r.region(4096, mem.Mmap, rdma.AccessLocalWrite)
		for i := range from.Bytes() {
			from.Bytes()[i] = byte(i * 7)
		}
		p := qa.(rdma.SpinPoster)
		var wcs [8]rdma.WC
		var last rdma.WC
		// run posts wrs, the last of which is signaled, and waits for that one.
		run := func(wrs []rdma.SendWR) rdma.Status {
			t.Helper()
			posted, polled, err := p.PostSendSpin(wrs, r.cq, wcs[:], 100*time.Microsecond)
			if err != nil || posted != len(wrs) || polled > 1 {
				t.Fatal(posted, polled, err)
			}
			wc := wcs[0]
			if polled == 0 {
				wc, err = r.next()
				r.check(err)
			}
			if wc.ID != wrs[len(wrs)-1].ID {
				t.Errorf("completion of %d, want %d", wc.ID, wrs[len(wrs)-1].ID)
			}
			last = wc
			return wc.Status
		}
		for n := range 40 { // one doorbell, and more than one
			wrs := make([]rdma.SendWR, n+1)
			for i := range wrs {
				wrs[i] = read(sink, 64, at(from))
				wrs[i].Flags, wrs[i].SGL[0].Off, wrs[i].Remote.Addr = 0, uint64(64*i), from.Addr()+uint64(64*i)
			}
			wrs[n].ID, wrs[n].Flags = uint64(n+1), rdma.SendSignaled
			begun := bootTime()
			if st := run(wrs); st != rdma.StatusSuccess {
				t.Fatalf("%d READs: %v", n+1, st)
			}
			if last.Polled < begun || last.Polled > bootTime() {
				t.Errorf("polled at %d, between %d and %d expected", last.Polled, begun, bootTime())
			}
			if k := 64 * (n + 1); !bytes.Equal(sink.Bytes()[:k], from.Bytes()[:k]) {
				t.Errorf("%d READs brought something else", n+1)
			}
			clear(sink.Bytes())
		}
		bad := read(sink, 64, at(from))
		bad.SGL[0].Off = 1 << 20
		if posted, polled, err := p.PostSendSpin([]rdma.SendWR{bad}, r.cq, wcs[:], 0); posted != 0 || polled != 0 || !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("out of bounds: %d, %d, %v", posted, polled, err)
		}
		// A wrong key ends the connection; posts after that are flushed.
		bad = read(sink, 64, rdma.RemoteAddr{Addr: from.Addr(), RKey: from.RKey() ^ 0x5a})
		bad.ID = 77
		if st := run([]rdma.SendWR{bad}); st != rdma.StatusRemAccessErr {
			t.Errorf("a wrong key: %v", st)
		}
		bad.ID = 78
		if st := run([]rdma.SendWR{bad}); st != rdma.StatusWRFlushErr {
			t.Errorf("on a dead QP: %v", st)
		}
		r.check(qa.Close())
		if n, _, err := p.PostSendSpin([]rdma.SendWR{bad}, r.cq, wcs[:], 0); n != 0 || !errors.Is(err, rdma.ErrNotConnected) {
			t.Errorf("after Close: %d, %v", n, err)
		}
	})
}

// bootTime is the clock of WC.Polled.
func bootTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// TestDispatcherPosts: goroutines that post through a Dispatcher and wait, alone
// and together, while the QP dies under them.
func TestDispatcherPosts(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		for _, mode := range []wait.Mode{wait.Adaptive, wait.Poll, wait.Event} {
			r := newRig(t, opts)
			qa, _ := r.connect(rdma.QPConfig{}, rdma.QPConfig{Access: rdma.AccessRemoteRead}, rdma.ConnParams{})
			from := r.region(4096, mem.Mmap, rdma.AccessRemoteRead)
			sink := r.region(4096, mem.Mmap, rdma.AccessLocalWrite)
			d := wait.NewDispatcher(r.cq, wait.Options{Wait: mode, Spin: wait.SpinTime(r.cq, mode, 0)})
			d.Start()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			readOnce := func(place int) rdma.Status {
				op := d.NewOp()
				wr := read(sink, 64, at(from))
				wr.ID, wr.SGL[0].Off = op.ID(), uint64(64*place)
				if n, err := d.PostSend(qa, []rdma.SendWR{wr}, op); n != 1 {
					d.Release(op)
					if !errors.Is(err, rdma.ErrNotConnected) {
						t.Error(err)
					}
					return rdma.StatusWRFlushErr
				}
				wc, err := d.Wait(ctx, op)
				if err != nil {
					t.Error(err)
				}
				return wc.Status
			}
			for range 200 {
				if st := readOnce(0); st != rdma.StatusSuccess {
					t.Fatal(st)
				}
			}
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for n := 0; ; n++ {
						if i == 0 && n == 100 {
							_ = qa.Disconnect()
						}
						if st := readOnce(i); st != rdma.StatusSuccess {
							if st != rdma.StatusWRFlushErr {
								t.Error(st)
							}
							return
						}
					}
				})
			}
			wg.Wait()
			r.check(qa.Close())
			r.check(d.Close())
			t.Logf("%v: %+v", mode, d.Stats())
		}
	})
}
