package iwarp_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
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
		block, err := memory.Alloc(captureSize, memory.Options{Kind: memory.Heap, Tag: "capture"})
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
	file string
	// rows are the fields captureFields of each packet with iWARP in it, in
	// order; a packet with several FPDUs has several values in a field.
	rows []map[string]string
}

// captureFields are what the tests look at, read by one run of tshark.
var captureFields = []string{
	"tcp.srcport",
	"iwarp_mpa.pdlength", "iwarp_mpa.rev", "iwarp_mpa.crc_flag", "iwarp_mpa.marker_flag", "iwarp_mpa.rej_flag", "iwarp_mpa.privatedata",
	"iwarp_mpa.ulpdulength", "iwarp_rdma.opcode", "iwarp_ddp.last_flag",
	"iwarp_rdma.rdmardsz", "iwarp_rdma.srcstag", "iwarp_rdma.srcto", "iwarp_rdma.sinkstag",
	"iwarp_rdma.term_layer", "iwarp_rdma.term_etype_rdma", "iwarp_rdma.term_errcode_rdma",
	"iwarp_rdma.term_etype_ddp", "iwarp_rdma.term_errcode_ddp_tagged", "iwarp_rdma.term_errcode_ddp_untagged",
}

// record connects two devices through a tee, lets the test speak, closes both
// ends and writes the capture.
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
	c.file = filepath.Join(t.TempDir(), "session.pcap")
	c.a.check(c.tee.WriteFile(c.file))
	return c
}

// needTshark finds tshark, or skips. Where RDMAKV_REQUIRE_TSHARK is 1 it must
// be there.
func needTshark(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("tshark")
	switch {
	case err == nil:
	case os.Getenv("RDMAKV_REQUIRE_TSHARK") == "1":
		t.Fatalf("RDMAKV_REQUIRE_TSHARK=1, but: %v (apt-get install tshark)", err)
	default:
		t.Skipf("no tshark here: %v (apt-get install tshark)", err)
	}
	return path
}

// tshark dissects the capture.
func (c *capture) tshark(args ...string) string {
	t := c.a.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, needTshark(t), append([]string{"-n", "-r", c.file, "--enable-heuristic", "iwarp_mpa_tcp",
		// These guess what a SEND carries, and complain that it is not theirs.
		"--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct",
		"-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"}, args...)...)
	// A home of its own: no preferences of whoever runs the tests.
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("tshark %v: %v\n%s", args, err, problems.String())
	}
	return out.String()
}

// A fpdu is one frame as the dissector understood it.
type fpdu struct {
	side   int
	opcode int
	last   bool
	ulpdu  int // bytes
}

// dissect checks that every byte of both streams was understood and nothing
// found fault with, and returns the frames.
func (c *capture) dissect(crc bool) (frames []fpdu) {
	t := c.a.t
	t.Helper()
	text := c.tshark("-V")
	for _, bad := range []string{"Malformed", "Bad CRC", "bad CRC", "Exception", "Unreassembled", "incorrect", "Retransmission", "Out-Of-Order"} {
		if i := strings.Index(text, bad); i >= 0 {
			t.Errorf("the dissection says %q:\n%s", bad, text[max(0, i-1500):min(len(text), i+500)])
		}
	}
	for _, severity := range []string{"Expert Info (Warning", "Expert Info (Error"} {
		if i := strings.Index(text, severity); i >= 0 {
			t.Errorf("the dissector has a complaint:\n%s", text[max(0, i-1500):min(len(text), i+500)])
		}
	}
	c.readFields()
	frames, handshake := c.frames()
	sum := [2]int{}
	for _, f := range frames {
		sum[f.side] += (2+f.ulpdu+3)&^3 + 4
	}
	for side := range sum {
		if got, want := sum[side]+handshake[side], c.tee.Sent(side); got != want {
			t.Errorf("side %d sent %d bytes, %d were dissected", side, want, got)
		}
	}
	if good := strings.Count(text, "(Good CRC32)"); crc && good != len(frames) || !crc && good != 0 {
		t.Errorf("%d good CRCs in %d FPDUs, CRC in use: %v", good, len(frames), crc)
	}
	return frames
}

// readFields fills rows.
func (c *capture) readFields() {
	args := []string{"-Y", "iwarp_mpa", "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,"}
	for _, f := range captureFields {
		args = append(args, "-e", f)
	}
	c.rows = nil
	for line := range strings.Lines(c.tshark(args...)) {
		row := map[string]string{}
		for i, v := range strings.Split(strings.TrimRight(line, "\n"), "\t") {
			row[captureFields[i]] = v
		}
		c.rows = append(c.rows, row)
	}
}

// all lists every value of a field, over all packets.
func (c *capture) all(field string) (ns []int) {
	c.a.t.Helper()
	for _, row := range c.rows {
		ns = append(ns, numbers(c.a.t, row[field])...)
	}
	return ns
}

// frames lists the FPDUs and the bytes of the MPA set-up of each side.
func (c *capture) frames() (frames []fpdu, handshake [2]int) {
	t := c.a.t
	t.Helper()
	for _, row := range c.rows {
		side := rdmatest.TeeDialer
		if row["tcp.srcport"] == strconv.Itoa(rdmatest.TeeAcceptorPort) {
			side = rdmatest.TeeAcceptor
		}
		for _, n := range numbers(t, row["iwarp_mpa.pdlength"]) {
			handshake[side] += 20 + n
		}
		lengths, opcodes, lasts := numbers(t, row["iwarp_mpa.ulpdulength"]), numbers(t, row["iwarp_rdma.opcode"]), numbers(t, row["iwarp_ddp.last_flag"])
		if len(lengths) != len(opcodes) || len(lengths) != len(lasts) {
			t.Fatalf("%d FPDUs, %d opcodes, %d last flags in one packet: %v", len(lengths), len(opcodes), len(lasts), row)
		}
		for i := range lengths {
			frames = append(frames, fpdu{side: side, opcode: opcodes[i], last: lasts[i] == 1, ulpdu: lengths[i]})
		}
	}
	return frames, handshake
}

// numbers reads "1,0x2,True".
func numbers(t *testing.T, list string) (ns []int) {
	t.Helper()
	for s := range strings.SplitSeq(list, ",") {
		switch s {
		case "":
		case "True", "1":
			ns = append(ns, 1)
		case "False", "0":
			ns = append(ns, 0)
		default:
			n, err := strconv.ParseInt(s, 0, 64)
			if err != nil {
				t.Fatalf("%q in %q: %v", s, list, err)
			}
			ns = append(ns, int(n))
		}
	}
	return ns
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
	needTshark(t)
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
			got := messages(s.dissect(c.crc))
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
	for _, row := range c.rows {
		if row["iwarp_mpa.rev"] != "" {
			frames = append(frames, row)
		}
	}
	if len(frames) != 2 {
		t.Fatalf("%d set-up frames: %v", len(frames), frames)
	}
	for i, said := range []string{"may I come in", "welcome"} {
		f := frames[i]
		flags := numbers(t, strings.Join([]string{f["iwarp_mpa.rev"], f["iwarp_mpa.crc_flag"], f["iwarp_mpa.marker_flag"], f["iwarp_mpa.rej_flag"]}, ","))
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
	size, from, at, into := c.all("iwarp_rdma.rdmardsz"), c.all("iwarp_rdma.srcstag"), c.all("iwarp_rdma.srcto"), c.all("iwarp_rdma.sinkstag")
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
	needTshark(t)
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
			got := messages(s.dissect(true))
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
			found := slices.Concat(s.all("iwarp_rdma.term_layer"), s.all(typ), s.all(code))
			if want := []int{c.layer, c.typ, c.code}; !slices.Equal(found, want) {
				t.Errorf("Terminate with layer, type, code %v, want %v", found, want)
			}
		})
	}
}
