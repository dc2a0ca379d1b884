package verbs_test

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// TestPath: the outcome of a connection says what it runs over, and options
// that name an MTU or a GID are obeyed or refused, never replaced.
func TestPath(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		r := newRig(t, opts)
		qa, qb := r.connect(rdma.QPConfig{}, rdma.QPConfig{}, rdma.ConnParams{})
		a, b := qa.Info(), qb.Info()
		if a.Path.Device != r.dev.Name() || a.Path.Port < 1 || a.Path.MTU < 256 {
			t.Errorf("path %+v", a.Path)
		}
		if a.Path.GIDType != "RoCE v2" || a.Path.GID == "" || a.Path.GID != b.Path.PeerGID || b.Path.GID != a.Path.PeerGID {
			t.Errorf("GIDs: %+v, %+v", a.Path, b.Path)
		}
		t.Logf("%s; %s; %+v", r.dev.Attr().Reason, a.Detail, a.Path)

		small := opts
		small.PathMTU = 512
		r = newRig(t, small)
		qa, _ = r.connect(rdma.QPConfig{}, rdma.QPConfig{}, rdma.ConnParams{})
		if m := qa.Info().Path.MTU; m != 512 {
			t.Errorf("PathMTU 512 gave %d", m)
		}

		named := opts
		named.GIDIndex = a.Path.GIDIndex
		r = newRig(t, named)
		qa, _ = r.connect(rdma.QPConfig{}, rdma.QPConfig{}, rdma.ConnParams{})
		if p := qa.Info().Path; p.GID != a.Path.GID || p.GIDIndex != a.Path.GIDIndex {
			t.Errorf("GIDIndex %d gave %+v", named.GIDIndex, p)
		}
		named.GIDIndex = 200
		if _, err := verbs.New(named).Open(t.Context(), ""); !errors.Is(err, rdma.ErrInvalid) || !strings.Contains(err.Error(), a.Path.GID) {
			t.Errorf("an empty GID index: %v; want ErrInvalid and the table", err)
		}
		named.GIDIndex, named.Port = 0, 99
		if _, err := verbs.New(named).Open(t.Context(), ""); !errors.Is(err, rdma.ErrNoDevice) {
			t.Errorf("a port that is not there: %v", err)
		}
	})
}

func TestRouting(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		f := verbs.New(opts)
		local, err := f.Local(t.Context(), ":4711")
		if err != nil || len(local) == 0 {
			t.Fatalf("Local: %v, %v", local, err)
		}
		for _, l := range local {
			if !strings.HasSuffix(l.Addr, ":4711") || l.Device == "" || l.Reason == "" {
				t.Errorf("Local: %+v", l)
			}
			one, err := f.Local(t.Context(), l.Addr)
			if err != nil || len(one) != 1 || one[0].Device != l.Device || one[0].Addr != l.Addr {
				t.Errorf("Local(%s): %+v, %v; want %+v", l.Addr, one, err, l)
			}
			route, err := f.Route(t.Context(), l.Addr)
			if err != nil || route.Device != l.Device || route.Addr != l.Addr || route.Reason == "" {
				t.Errorf("Route(%s): %+v, %v; want %+v", l.Addr, route, err, l)
			}
			dev, err := f.Open(t.Context(), route.Device)
			if err != nil {
				t.Fatalf("Open of a routed device: %v", err)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
		// 192.0.2.0/24 is not assigned (RFC 5737).
		for what, err := range map[string]error{
			"Local of a stranger": second(f.Local(t.Context(), "192.0.2.1:1")),
			"Route to a stranger": second(f.Route(t.Context(), "192.0.2.1:1")),
		} {
			if err := isAny(err, rdma.ErrNoDevice); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, bad := range []string{"", "x", "10.0.0.1", "10.0.0.1:99999", "no-such-host.invalid:1"} {
			for _, err := range []error{second(f.Local(t.Context(), bad)), second(f.Route(t.Context(), bad))} {
				if err := isAny(err, rdma.ErrInvalid); err != nil {
					t.Errorf("%q: %v", bad, err)
				}
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestAtomics: both operations work where the device says so, and what would
// hang it is refused.
func TestAtomics(t *testing.T) {
	needDevice(t)
	r := newRig(t, verbs.Options{})
	if !r.dev.Attr().Caps.Has(rdma.CapAtomics) {
		if os.Getenv("LAB_RDMA") == "rxe" {
			t.Fatal("Soft-RoCE has atomics")
		}
		t.Skip("this device has no atomics")
	}
	qa, qb := r.connect(rdma.QPConfig{}, rdma.QPConfig{}, rdma.ConnParams{})
	r.check(qb.SetAccess(rdma.AccessRemoteAtomic))
	word := r.region(16, mem.Mmap, rdma.AccessLocalWrite|rdma.AccessRemoteAtomic)
	old := r.region(8, mem.Mmap, rdma.AccessLocalWrite)
	value := func(m rdma.MR) uint64 { return binary.NativeEndian.Uint64(m.Bytes()) }
	add := rdma.SendWR{Op: rdma.OpAtomicFetchAdd, CompareAdd: 5, Remote: at(word), SGL: []rdma.SGE{{MR: old, Len: 8}}}
	swap := rdma.SendWR{Op: rdma.OpAtomicCmpSwap, CompareAdd: 10, Swap: 77, Remote: at(word), SGL: []rdma.SGE{{MR: old, Len: 8}}}
	for _, c := range []struct {
		wr         rdma.SendWR
		was, after uint64
	}{{add, 0, 5}, {swap, 5, 5}, {add, 5, 10}, {swap, 10, 77}} {
		if s := r.post(qa, c.wr); s != rdma.StatusSuccess || value(old) != c.was || value(word) != c.after {
			t.Fatalf("%v: %v, brought %d (want %d), left %d (want %d)", c.wr.Op, s, value(old), c.was, value(word), c.after)
		}
	}
	crooked, short := add, add
	crooked.Remote.Addr++
	short.SGL = []rdma.SGE{{MR: old, Len: 4}}
	for _, wr := range []rdma.SendWR{crooked, short} {
		if n, err := qa.PostSend([]rdma.SendWR{wr}); n != 0 || !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%+v: %d, %v", wr, n, err)
		}
	}
	r.check(qb.SetAccess(rdma.AccessRemoteRead))
	if s := r.post(qa, add); !errors.Is(s.Err(), rdma.ErrAccess) {
		t.Errorf("an atomic without the right: %v", s)
	}
}

// TestReadsBeyondORD: they wait their turn in the device, here one at a time.
func TestReadsBeyondORD(t *testing.T) {
	bothWays(t, func(t *testing.T, opts verbs.Options) {
		r := newRig(t, opts)
		qa, _ := r.connect(rdma.QPConfig{}, rdma.QPConfig{Access: rdma.AccessRemoteRead}, rdma.ConnParams{ORD: 1, IRD: 1})
		if ord := qa.Info().ORD; ord != 1 {
			t.Fatalf("ORD %d", ord)
		}
		m := r.region(64, mem.Mmap, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
		var wrs []rdma.SendWR
		for range 32 {
			wrs = append(wrs, read(m, 8, at(m)))
		}
		if n, err := qa.PostSend(wrs); n != len(wrs) {
			t.Fatalf("%d, %v", n, err)
		}
		for range wrs {
			if wc, err := r.next(); err != nil || wc.Status != rdma.StatusSuccess {
				t.Fatalf("READs over ORD: %v, %v", wc.Status, err)
			}
		}
	})
}

// TestHugePages: what rdma/mem reserves as huge pages can be registered
// and READ.
func TestHugePages(t *testing.T) {
	needDevice(t)
	const knob = "/proc/sys/vm/nr_hugepages"
	if before, err := os.ReadFile(knob); err == nil && strings.TrimSpace(string(before)) == "0" {
		if os.WriteFile(knob, []byte("8"), 0) == nil {
			t.Cleanup(func() { _ = os.WriteFile(knob, []byte("0"), 0) })
		}
	}
	block, err := mem.Alloc(4<<20, mem.Options{Kind: mem.Huge, Tag: "test"})
	if errors.Is(err, mem.ErrNoHugePages) && os.Getenv("RDMAKV_LAB") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, verbs.Options{})
	r.later(block.Free)
	m, err := r.pd.RegMR(block.Bytes(), rdma.AccessRemoteRead|rdma.AccessLocalWrite)
	r.check(err)
	r.later(m.Close)
	sink := r.region(4096, mem.Mmap, rdma.AccessLocalWrite)
	qa, _ := r.connect(rdma.QPConfig{}, rdma.QPConfig{Access: rdma.AccessRemoteRead}, rdma.ConnParams{})
	for _, off := range []int{0, 2<<20 - 2048, 4<<20 - 4096} { // across a page's end, too
		for i := range 4096 {
			m.Bytes()[off+i] = byte(off>>12 + i)
		}
		from := at(m)
		from.Addr += uint64(off)
		if s := r.post(qa, read(sink, 4096, from)); s != rdma.StatusSuccess {
			t.Fatalf("READ at %d: %v", off, s)
		}
		if string(sink.Bytes()) != string(m.Bytes()[off:off+4096]) {
			t.Errorf("READ at %d brought other bytes", off)
		}
	}
}

// A spinner is what a CQ of this fabric can do beyond rdma.CQ.
type spinner interface {
	Spin(wcs []rdma.WC, d time.Duration) (int, error)
}

// TestDataPathAllocatesNothing: post, poll and spin.
func TestDataPathAllocatesNothing(t *testing.T) {
	needDevice(t)
	r := newRig(t, verbs.Options{})
	qa, qb := r.connect(rdma.QPConfig{Cap: rdma.QPCap{MaxInline: 32}}, rdma.QPConfig{Access: rdma.AccessRemoteRead}, rdma.ConnParams{})
	m := r.region(4096, mem.Mmap, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	reads := []rdma.SendWR{read(m, 64, at(m))}
	var wcs [4]rdma.WC
	finish := func(n int, poll func() (int, error)) {
		for n > 0 {
			got, err := poll()
			if err != nil || got > 0 && wcs[0].Status != rdma.StatusSuccess {
				t.Fatalf("%v, %v", wcs[0].Status, err)
			}
			n -= got
			if got == 0 {
				runtime.Gosched()
			}
		}
	}
	poll := func() (int, error) { return r.cq.Poll(wcs[:]) }
	spin := func() (int, error) { return r.cq.(spinner).Spin(wcs[:], 50*time.Microsecond) }
	recvs := []rdma.RecvWR{{ID: 1, SGL: []rdma.SGE{{MR: m, Len: 64}}}}
	sends := []rdma.SendWR{{Op: rdma.OpSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte("hello")}}
	for name, f := range map[string]func(){
		"READ, poll": func() {
			_, _ = qa.PostSend(reads)
			finish(1, poll)
		},
		"READ, spin": func() {
			_, _ = qa.PostSend(reads)
			finish(1, spin)
		},
		"READ, posted and polled in one call": func() {
			_, n, _ := qa.(rdma.SpinPoster).PostSendSpin(reads, r.cq, wcs[:], 50*time.Microsecond)
			finish(1-n, spin)
		},
		"receive and inline SEND": func() {
			_, _ = qb.PostRecv(recvs)
			_, _ = qa.PostSend(sends)
			finish(2, poll)
		},
	} {
		f()
		if n := testing.AllocsPerRun(200, f); n >= 1 && !raceEnabled {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
