package rdmatest

import (
	"context"
	"errors"
	"strings"
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
