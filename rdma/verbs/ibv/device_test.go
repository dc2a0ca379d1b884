//go:build linux && cgo

package ibv

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDevices compares what the library says with what the kernel shows.
func TestDevices(t *testing.T) {
	anyDevice(t)
	list := must(Devices())(t)
	for _, d := range list {
		guid, err := readLine(filepath.Join(sysfsRoot, d.Name, "node_guid"))
		if err != nil {
			t.Fatal(err)
		}
		c := must(Open(d.Name))(t)
		if c.Info() != d {
			t.Errorf("opened %+v and got %+v", d, c.Info())
		}
		attr := must(c.QueryDevice())(t)
		want := strings.ReplaceAll(guid, ":", "")
		for _, g := range []uint64{d.GUID, attr.NodeGUID} {
			if got := hex64(g); got != want {
				t.Errorf("%s: GUID %s, sysfs has %s", d.Name, got, want)
			}
		}
		if !strings.HasPrefix(d.Kernel, "uverbs") || attr.PhysPortCnt < 1 || attr.MaxQP < 1 || attr.MaxSGE < 1 ||
			attr.MaxCQE < 1 || attr.MaxMRSize < 1<<20 || attr.MaxQPRdAtom < 1 || attr.MaxPKeys < 1 {
			t.Errorf("%+v has %+v", d, attr)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func hex64(v uint64) string {
	const digits = "0123456789abcdef"
	var b [16]byte
	for i := range b {
		b[i] = digits[v>>(60-4*i)&15]
	}
	return string(b[:])
}

func TestOpenUnknownDevice(t *testing.T) {
	name := anyDevice(t)
	_, err := Open("no_such_device")
	if !errors.Is(err, ErrNoSuchDevice) || !strings.Contains(err.Error(), name) || errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestPorts compares attributes, GIDs and keys with sysfs.
func TestPorts(t *testing.T) {
	c := openAny(t)
	attr := must(c.QueryPort(1))(t)
	dir := filepath.Join(sysfsRoot, c.Info().Name, "ports", "1")
	if state, _ := readLine(filepath.Join(dir, "state")); !strings.HasSuffix(state, attr.State.String()) {
		t.Errorf("state %v, sysfs %q", attr.State, state)
	}
	if link, _ := readLine(filepath.Join(dir, "link_layer")); link != attr.LinkLayer.String() {
		t.Errorf("link layer %v, sysfs %q", attr.LinkLayer, link)
	}
	if attr.ActiveMTU.Bytes() == 0 || attr.MaxMTU < attr.ActiveMTU || attr.MaxMsgSz < 1<<20 || attr.GIDTblLen < 1 || attr.PKeyTblLen < 1 {
		t.Errorf("%+v", attr)
	}
	table := must(c.GIDTable(1))(t)
	sysfs := must(sysfsGIDs(sysfsRoot, c.Info().Name, 1, attr.LinkLayer))(t)
	if !slices.Equal(table, sysfs) || len(table) == 0 {
		t.Errorf("the library has the GIDs\n%+v, sysfs\n%+v", table, sysfs)
	}
	if inLab() && os.Getenv("LAB_RDMA") == "rxe" {
		if !slices.ContainsFunc(table, func(e GIDEntry) bool {
			return e.Type == GIDRoCEv2 && netip.AddrFrom16(e.GID).Is4In6() && e.NetDev == "eth0"
		}) {
			t.Errorf("no RoCE v2 GID of an IPv4 address: %+v", table)
		}
	}
	if pkey := must(c.QueryPKey(1, 0))(t); pkey&0x7fff == 0 {
		t.Errorf("P_Key 0 is %#x", pkey)
	}
	if _, err := c.QueryPort(99); err == nil {
		t.Error("port 99 is there")
	}
	if _, err := c.QueryPKey(1, 1<<20); err == nil {
		t.Error("P_Key 1<<20 is there")
	}
}

func TestRegMR(t *testing.T) {
	c := openAny(t)
	pd := must(c.AllocPD())(t)
	closing(t, pd)
	mem := pages(t, 1<<20)
	a := must(pd.RegMR(uintptr(addrOf(mem)), len(mem), AccessLocalWrite|AccessRemoteRead))(t)
	b := must(pd.RegMR(uintptr(addrOf(mem))+512, 100, AccessLocalWrite))(t)
	if a.RKey == b.RKey || a.LKey == b.LKey || a.Addr != addrOf(mem) || a.Len != len(mem) || b.Addr != addrOf(mem)+512 {
		t.Errorf("%+v, %+v", a, b)
	}
	if err := pd.Close(); !isErrno(err, syscall.EBUSY) || !strings.Contains(err.Error(), "2 MR") {
		t.Errorf("closed a PD with MRs: %v", err)
	}
	for _, m := range []*MR{a, b, a} { // closing twice does nothing
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := pd.RegMR(4096, 4096, AccessLocalWrite); !isErrno(err, syscall.EFAULT) || !strings.Contains(err.Error(), "not mapped") {
		t.Errorf("registered what is not mapped: %v", err)
	}
	for _, acc := range []Access{AccessRemoteWrite, AccessRemoteAtomic} {
		if _, err := pd.RegMR(uintptr(addrOf(mem)), 4096, acc); !isInval(err) || !strings.Contains(err.Error(), "LOCAL_WRITE") {
			t.Errorf("%v without LOCAL_WRITE: %v", acc, err)
		}
	}
	if _, err := pd.RegMR(uintptr(addrOf(mem)), -1, AccessLocalWrite); !isInval(err) {
		t.Errorf("negative length: %v", err)
	}
}

// TestMemlock: the commonest failure of all tells the limit. The limit does not
// hold for a thread with CAP_IPC_LOCK, so the thread drops that for the time.
func TestMemlock(t *testing.T) {
	c := openAny(t)
	pd := must(c.AllocPD())(t)
	closing(t, pd)
	mem := pages(t, 4<<20)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	withoutIPCLock(t, func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: old.Max}); err != nil {
			t.Error(err)
		}
		defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
		mr, err := pd.RegMR(uintptr(addrOf(mem)), len(mem), AccessLocalWrite)
		if err == nil {
			mr.Close()
		}
		if !isErrno(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "64 KiB") || !strings.Contains(err.Error(), "ulimit -l") {
			t.Errorf("4 MiB under a limit of 64 KiB: %v", err)
		}
	})
	if !t.Failed() {
		must(pd.RegMR(uintptr(addrOf(mem)), len(mem), AccessLocalWrite))(t).Close()
	}
}

// TestCloseOrder: what has children stays open, and says which.
func TestCloseOrder(t *testing.T) {
	c := must(Open(anyDevice(t)))(t)
	pd := must(c.AllocPD())(t)
	ch := must(c.CreateCompChannel())(t)
	cq := must(c.CreateCQ(10, ch))(t)
	srq := must(pd.CreateSRQ(10, 1, 0))(t)
	qp, _, err := pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, SRQ: srq, Cap: QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if cq.Depth() < 10 || srq.MaxWR < 10 || srq.MaxSGE < 1 {
		t.Errorf("CQ of %d, SRQ of %d and %d", cq.Depth(), srq.MaxWR, srq.MaxSGE)
	}
	busy := func(o interface{ Close() error }, why string) {
		t.Helper()
		if err := o.Close(); !isErrno(err, syscall.EBUSY) || !strings.Contains(err.Error(), why) {
			t.Errorf("%T: %v, want %q", o, err, why)
		}
	}
	busy(c, "1 CQ, 1 PD, 1 completion channel")
	busy(pd, "1 QP, 1 SRQ")
	busy(ch, "1 CQ")
	busy(cq, "1 QP")
	busy(srq, "1 QP")
	// Nothing broke by that.
	if err := cq.ReqNotify(false); err != nil {
		t.Error(err)
	}
	for _, o := range []interface{ Close() error }{qp, srq, cq, ch, pd, c, qp, c} {
		if err := o.Close(); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
	var wcs [1]WC
	for what, err := range map[string]error{
		"QueryDevice": second(c.QueryDevice()), "QueryPort": second(c.QueryPort(1)), "GIDTable": second(c.GIDTable(1)),
		"QueryPKey": second(c.QueryPKey(1, 0)), "AllocPD": second(c.AllocPD()), "CreateCQ": second(c.CreateCQ(1, nil)),
		"CreateCompChannel": second(c.CreateCompChannel()), "AsyncEvent": second(c.AsyncEvent(context.Background())),
		"RegMR": second(pd.RegMR(4096, 1, 0)), "CreateSRQ": second(pd.CreateSRQ(1, 1, 0)),
		"Get": second(ch.Get(context.Background())), "Poll": second(cq.Poll(wcs[:])), "Spin": second(cq.Spin(wcs[:], 0)),
		"ReqNotify": cq.ReqNotify(false), "SRQ.PostRecv": second(srq.PostRecv(make([]RecvWR, 1))), "ArmLimit": srq.ArmLimit(1),
		"Modify": qp.Modify(&QPAttr{}, QPMaskState), "Query": second(qp.Query(QPMaskState)),
		"PostSend": second(qp.PostSend(make([]SendWR, 1))), "PostRecv": second(qp.PostRecv(make([]RecvWR, 1))),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	if _, _, err := qp.PostSendSpin(make([]SendWR, 1), cq, wcs[:], 0); !errors.Is(err, ErrClosed) {
		t.Errorf("PostSendSpin after Close: %v", err)
	}
	if _, _, err := pd.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq}); !errors.Is(err, ErrClosed) {
		t.Errorf("CreateQP after Close: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
