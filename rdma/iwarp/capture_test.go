package iwarp_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/rdmatest"
)

// Whether this fabric speaks the standard is not for its own decoder to say.
// These tests have a session dissected by tshark: every byte must be part of a
// frame that it understands, every CRC good, nothing malformed, and the fields
// what was meant.

// RDMAP opcodes (RFC 5040 section 4.3), as the dissector prints them.
const (
	opWrite     = 0
	opReadReq   = 1
	opReadResp  = 2
	opSend      = 3
	opSendSE    = 5
	opTerminate = 7
)

const (
	captureSize  = 1 << 18
	captureLarge = 100_000 // several FPDUs
)

// A captureEnd is one side of a captured connection.
type captureEnd struct {
	t    *testing.T
	pd   rdma.PD
	cq   rdma.CQ
	qp   rdma.QP
	mr   rdma.MR // all rights
	dead rdma.MR // a region without remote rights
}

func newCaptureEnd(t *testing.T, opts iwarp.Options) (*captureEnd, rdma.Device) {
	t.Helper()
	c := &captureEnd{t: t}
	closing := func(f func() error) { t.Cleanup(func() { c.check(f()) }) }
	dev, err := iwarp.New(opts).Open(t.Context(), "")
	c.check(err)
	closing(dev.Close)
	c.pd, err = dev.AllocPD()
	c.check(err)
	closing(c.pd.Close)
	c.cq, err = dev.CreateCQ(1024)
	c.check(err)
	closing(c.cq.Close)
	region := func(access rdma.Access) rdma.MR {
		block, err := mem.Alloc(captureSize, mem.Options{Kind: mem.Heap, Tag: "capture"})
		c.check(err)
		closing(block.Free)
		mr, err := c.pd.RegMR(block.Bytes(), access)
		c.check(err)
		closing(mr.Close)
		return mr
	}
	c.mr = region(rdma.AccessLocalWrite | rdma.AccessRemoteRead | rdma.AccessRemoteWrite)
	c.dead = region(rdma.AccessLocalWrite)
	c.qp, err = c.pd.CreateQP(rdma.QPConfig{SendCQ: c.cq, RecvCQ: c.cq, Access: rdma.AccessRemoteRead | rdma.AccessRemoteWrite})
	c.check(err)
	closing(c.qp.Close)
	return c, dev
}

func (c *captureEnd) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *captureEnd) recv(n int) {
	c.t.Helper()
	_, err := c.qp.PostRecv([]rdma.RecvWR{{SGL: []rdma.SGE{{MR: c.mr, Len: uint32(n)}}}})
	c.check(err)
}

// post posts one request of n bytes, signaled.
func (c *captureEnd) post(op rdma.Opcode, flags rdma.SendFlags, n int, remote rdma.RemoteAddr) {
	c.t.Helper()
	wr := rdma.SendWR{Op: op, Flags: flags | rdma.SendSignaled, Remote: remote}
	if n > 0 {
		wr.SGL = []rdma.SGE{{MR: c.mr, Len: uint32(n)}}
	}
	_, err := c.qp.PostSend([]rdma.SendWR{wr})
	c.check(err)
}

// wait takes n completions and returns their statuses.
func (c *captureEnd) wait(n int) (got []rdma.Status) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wcs [16]rdma.WC
	for armed := false; len(got) < n; {
		k, err := c.cq.Poll(wcs[:min(len(wcs), n-len(got))])
		c.check(err)
		for _, wc := range wcs[:k] {
			got = append(got, wc.Status)
		}
		switch {
		case k > 0:
		case !armed:
			c.check(c.cq.Arm())
			armed = true
		default:
			c.check(c.cq.Wait(ctx))
			armed = false
		}
	}
	return got
}

// A capture is one recorded connection between a, which dialed, and b.
type capture struct {
	a, b *captureEnd
	tee  *rdmatest.Tee
	*rdmatest.Dissection
}

var (
	captureArgs = []string{"--enable-heuristic", "iwarp_mpa_tcp",
		// These guess what a SEND carries, and complain that it is not theirs.
		"--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"}

	captureFields = []string{
		"tcp.srcport",
		"iwarp_mpa.pdlength", "iwarp_mpa.rev", "iwarp_mpa.crc_flag", "iwarp_mpa.marker_flag", "iwarp_mpa.rej_flag", "iwarp_mpa.privatedata",
		"iwarp_mpa.ulpdulength", "iwarp_rdma.opcode", "iwarp_ddp.last_flag",
		"iwarp_rdma.rdmardsz", "iwarp_rdma.srcstag", "iwarp_rdma.srcto", "iwarp_rdma.sinkstag",
		"iwarp_rdma.term_layer", "iwarp_rdma.term_etype_rdma", "iwarp_rdma.term_errcode_rdma",
		"iwarp_rdma.term_etype_ddp", "iwarp_rdma.term_errcode_ddp_tagged", "iwarp_rdma.term_errcode_ddp_untagged",
	}
)

// record connects two devices through a tee, lets the test speak, closes both
// ends and has the capture dissected.
func record(t *testing.T, opts iwarp.Options, recvs int, speak func(c *capture)) *capture {
	t.Helper()
	c := &capture{}
	var dev rdma.Device
	c.a, _ = newCaptureEnd(t, opts)
	c.b, dev = newCaptureEnd(t, opts)
	l, err := dev.Listen(t.Context(), "127.0.0.1:0")
	c.b.check(err)
	defer l.Close()
	for range recvs {
		c.b.recv(captureLarge)
	}
	c.tee = rdmatest.NewTee(t, l.Addr().String())
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(context.Background())
		if err == nil {
			_, err = req.Accept(context.Background(), c.b.qp, rdma.ConnParams{PrivateData: []byte("welcome"), IRD: 5, ORD: 4})
		}
		accepted <- err
	}()
	_, err = c.a.qp.Connect(t.Context(), c.tee.Addr(), rdma.ConnParams{PrivateData: []byte("may I come in"), IRD: 3, ORD: 7})
	c.a.check(err)
	c.b.check(<-accepted)
	speak(c)
	c.a.check(c.a.qp.Close())
	c.b.check(c.b.qp.Close())
	c.tee.Close()
	c.Dissection = c.tee.Dissect(captureArgs, "iwarp_mpa", captureFields)
	return c
}

// A fpdu is one frame as the dissector understood it.
type fpdu struct {
	side   int
	opcode int
	last   bool
}

// frames checks that every byte of both streams was understood and nothing
// found fault with, and returns the FPDUs.
func (c *capture) frames(crc bool) (frames []fpdu) {
	t := c.a.t
	t.Helper()
	c.ExpectClean()
	var dissected [2]int // bytes of each side
	for _, row := range c.Rows {
		side := rdmatest.TeeDialer
		if row["tcp.srcport"] == strconv.Itoa(rdmatest.TeeAcceptorPort) {
			side = rdmatest.TeeAcceptor
		}
		for _, n := range c.Numbers(row, "iwarp_mpa.pdlength") {
			dissected[side] += 20 + n // an MPA request or reply
		}
		lengths, opcodes, lasts := c.Numbers(row, "iwarp_mpa.ulpdulength"), c.Numbers(row, "iwarp_rdma.opcode"), c.Numbers(row, "iwarp_ddp.last_flag")
		if len(lengths) != len(opcodes) || len(lengths) != len(lasts) {
			t.Fatalf("%d FPDUs, %d opcodes, %d last flags in one packet: %v", len(lengths), len(opcodes), len(lasts), row)
		}
		for i := range lengths {
			frames = append(frames, fpdu{side: side, opcode: opcodes[i], last: lasts[i] == 1})
			dissected[side] += (2+lengths[i]+3)&^3 + 4
		}
	}
	for side, got := range dissected {
		if want := c.tee.Sent(side); got != want {
			t.Errorf("side %d sent %d bytes, %d were dissected", side, want, got)
		}
	}
	if good := strings.Count(c.Text, "(Good CRC32)"); crc && good != len(frames) || !crc && good != 0 {
		t.Errorf("%d good CRCs in %d FPDUs, CRC in use: %v", good, len(frames), crc)
	}
	return frames
}

// messages counts whole messages by side and opcode.
func messages(frames []fpdu) map[[2]int]int {
	m := map[[2]int]int{}
	for _, f := range frames {
		if f.last {
			m[[2]int{f.side, f.opcode}]++
		}
	}
	return m
}

// TestCapture: a session with one of everything, by both revisions of MPA, with
// CRC and without.
func TestCapture(t *testing.T) {
	rdmatest.NeedTshark(t)
	for _, c := range []struct {
		name string
		opts iwarp.Options
		crc  bool
	}{
		{"revision 2", iwarp.Options{}, true},
		{"revision 1", iwarp.Options{Revision: 1}, true},
		{"revision 2 without CRC", iwarp.Options{NoCRC: true}, false},
		{"small frames", iwarp.Options{MaxPayload: 1408}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := record(t, c.opts, 4, func(s *capture) {
				at := rdma.RemoteAddr{Addr: s.b.mr.Addr() + 64, RKey: s.b.mr.RKey()}
				s.a.post(rdma.OpSend, 0, 5, rdma.RemoteAddr{})
				s.a.post(rdma.OpSend, rdma.SendSolicited, 0, rdma.RemoteAddr{})
				s.a.post(rdma.OpSend, 0, captureLarge, rdma.RemoteAddr{})
				s.a.post(rdma.OpRDMARead, 0, 8, at)
				s.a.post(rdma.OpRDMARead, 0, captureLarge, at)
				s.a.post(rdma.OpRDMAWrite, 0, 24, at)
				s.a.post(rdma.OpRDMAWrite, 0, captureLarge, at)
				s.a.post(rdma.OpSend, 0, 1, rdma.RemoteAddr{})
				for i, status := range append(s.a.wait(8), s.b.wait(4)...) {
					if status != rdma.StatusSuccess {
						t.Fatalf("completion %d: %v", i, status)
					}
				}
			})
			got := messages(s.frames(c.crc))
			want := map[[2]int]int{
				{rdmatest.TeeDialer, opSend}:       3,
				{rdmatest.TeeDialer, opSendSE}:     1,
				{rdmatest.TeeDialer, opReadReq}:    2,
				{rdmatest.TeeDialer, opWrite}:      2,
				{rdmatest.TeeAcceptor, opReadResp}: 2,
			}
			if c.opts.Revision != 1 {
				want[[2]int{rdmatest.TeeDialer, opWrite}]++ // the ready-to-receive frame
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("messages by side and opcode: %v, want %v", got, want)
			}
			s.expectSetUp(c.opts.Revision != 1, c.crc)
			s.expectReads([]int{8, captureLarge})
		})
	}
}

// expectSetUp checks the MPA request and reply.
func (c *capture) expectSetUp(rev2, crc bool) {
	t := c.a.t
	t.Helper()
	rev := 1
	if rev2 {
		rev = 2
	}
	var frames []map[string]string
	for _, row := range c.Rows {
		if row["iwarp_mpa.rev"] != "" {
			frames = append(frames, row)
		}
	}
	if len(frames) != 2 {
		t.Fatalf("%d set-up frames: %v", len(frames), frames)
	}
	for i, said := range []string{"may I come in", "welcome"} {
		f := frames[i]
		var flags []int
		for _, field := range []string{"iwarp_mpa.rev", "iwarp_mpa.crc_flag", "iwarp_mpa.marker_flag", "iwarp_mpa.rej_flag"} {
			flags = append(flags, c.Numbers(f, field)...)
		}
		want := []int{rev, 0, 0, 0}
		if crc {
			want[1] = 1
		}
		if !slices.Equal(flags, want) {
			t.Errorf("set-up frame %d: revision, CRC, markers, reject are %v, want %v", i, flags, want)
		}
		private := strings.ReplaceAll(f["iwarp_mpa.privatedata"], ":", "")
		if !strings.HasSuffix(private, fmt.Sprintf("%x", said)) {
			t.Errorf("set-up frame %d: private data %s, want %x at its end", i, private, said)
		}
	}
}

// expectReads checks the fields of the READ requests.
func (c *capture) expectReads(sizes []int) {
	t := c.a.t
	t.Helper()
	size, from, at, into := c.All("iwarp_rdma.rdmardsz"), c.All("iwarp_rdma.srcstag"), c.All("iwarp_rdma.srcto"), c.All("iwarp_rdma.sinkstag")
	if !slices.Equal(size, sizes) {
		t.Fatalf("READ sizes %v, want %v", size, sizes)
	}
	for i := range sizes {
		if from[i] != int(c.b.mr.RKey()) || at[i] != int(c.b.mr.Addr())+64 || into[i] != int(c.a.mr.LKey()) {
			t.Errorf("READ %d: from STag %#x at %d into STag %#x; want %#x, %d, %#x", i,
				from[i], at[i], into[i], c.b.mr.RKey(), c.b.mr.Addr()+64, c.a.mr.LKey())
		}
	}
}

// TestCaptureTerminate: each breach is answered with a Terminate that names
// the right layer, type and code (RFC 5040 section 4.8, RFC 5041 section 7).
func TestCaptureTerminate(t *testing.T) {
	rdmatest.NeedTshark(t)
	const layerRDMA, layerDDP = 0, 1
	const (
		protection = 1 // RDMAP: remote protection error
		tagged     = 1 // DDP: tagged buffer error
		untagged   = 2 // DDP: untagged buffer error
	)
	good := func(c *capture) rdma.RemoteAddr {
		return rdma.RemoteAddr{Addr: c.b.mr.Addr(), RKey: c.b.mr.RKey()}
	}
	request := func(op rdma.Opcode, n int, change func(c *capture, at *rdma.RemoteAddr)) func(c *capture) {
		return func(c *capture) {
			at := good(c)
			change(c, &at)
			c.a.post(op, 0, n, at)
		}
	}
	badKey := func(c *capture, at *rdma.RemoteAddr) { at.RKey ^= 1 }
	outside := func(c *capture, at *rdma.RemoteAddr) { at.Addr += captureSize - 8 }
	noRight := func(c *capture, at *rdma.RemoteAddr) {
		*at = rdma.RemoteAddr{Addr: c.b.dead.Addr(), RKey: c.b.dead.LKey()}
	}
	notGranted := func(c *capture, at *rdma.RemoteAddr) { c.b.check(c.b.qp.SetAccess(0)) }
	for _, c := range []struct {
		name             string
		recvs            int
		speak            func(c *capture)
		layer, typ, code int
	}{
		{"READ, unknown STag", 0, request(rdma.OpRDMARead, 16, badKey), layerRDMA, protection, 0},
		{"READ, out of bounds", 0, request(rdma.OpRDMARead, 16, outside), layerRDMA, protection, 1},
		{"READ, region without the right", 0, request(rdma.OpRDMARead, 16, noRight), layerRDMA, protection, 2},
		{"READ, not granted on the QP", 0, request(rdma.OpRDMARead, 16, notGranted), layerRDMA, protection, 2},
		{"WRITE, unknown STag", 0, request(rdma.OpRDMAWrite, 16, badKey), layerDDP, tagged, 0},
		{"WRITE, out of bounds", 0, request(rdma.OpRDMAWrite, 16, outside), layerDDP, tagged, 1},
		{"SEND without a receive", 0, func(c *capture) { c.a.post(rdma.OpSend, 0, 4, rdma.RemoteAddr{}) }, layerDDP, untagged, 2},
		{"SEND too long", 1, func(c *capture) { c.a.post(rdma.OpSend, 0, captureLarge+1, rdma.RemoteAddr{}) }, layerDDP, untagged, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := record(t, iwarp.Options{}, c.recvs, func(s *capture) {
				c.speak(s)
				for _, e := range []*captureEnd{s.a, s.b} {
					select {
					case <-e.qp.Done():
					case <-time.After(30 * time.Second):
						t.Fatal("the connection lives on")
					}
				}
			})
			got := messages(s.frames(true))
			if n := got[[2]int{rdmatest.TeeAcceptor, opTerminate}]; n != 1 {
				t.Errorf("%d Terminates of the acceptor in %v", n, got)
			}
			if n := got[[2]int{rdmatest.TeeDialer, opTerminate}]; n != 0 {
				t.Errorf("%d Terminates of the dialer", n)
			}
			typ, code := "iwarp_rdma.term_etype_rdma", "iwarp_rdma.term_errcode_rdma"
			if c.layer == layerDDP {
				typ, code = "iwarp_rdma.term_etype_ddp", "iwarp_rdma.term_errcode_ddp_tagged"
				if c.typ == untagged {
					code = "iwarp_rdma.term_errcode_ddp_untagged"
				}
			}
			found := slices.Concat(s.All("iwarp_rdma.term_layer"), s.All(typ), s.All(code))
			if want := []int{c.layer, c.typ, c.code}; !slices.Equal(found, want) {
				t.Errorf("Terminate with layer, type, code %v, want %v", found, want)
			}
		})
	}
}
