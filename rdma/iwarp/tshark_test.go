package iwarp

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// TestTshark records a session with every kind of message and lets Wireshark's
// dissector, which is somebody else's reading of the RFCs, look at it: nothing
// malformed, every CRC right, and all the messages there. The recording comes
// from a relay between the two ends, so it needs no privilege.
func TestTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed: apt install tshark")
	}
	for _, c := range []struct {
		name string
		opts Options
	}{{"rev2", Options{}}, {"rev1", Options{Revision: 1}}} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "session.pcap")
			check(t, os.WriteFile(file, recordSession(t, c.opts), 0o600))
			// MPA is found by heuristics, which newer versions leave off. What
			// SENDs carry is not for Wireshark to guess: it would take our test
			// bytes for the RPC of NFS, and find that malformed.
			out, err := exec.Command(tshark, "-r", file, "-V", "--enable-heuristic", "iwarp_mpa_tcp",
				"--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			text := string(out)
			for _, bad := range []string{"Malformed", "malformed", "Bad CRC", "incorrect", "Dissector bug", "Bad length", "Unknown"} {
				if i := strings.Index(text, bad); i >= 0 {
					t.Errorf("the dissector says %q: …%s…", bad, text[max(0, i-400):min(len(text), i+200)])
				}
			}
			for _, want := range []string{"OpCode: Send (0x3)", "OpCode: Send with SE", "OpCode: Write", "OpCode: Read Request", "OpCode: Read Response", "OpCode: Terminate", "Invalid STag", "Good CRC32"} {
				if !strings.Contains(text, want) {
					t.Errorf("the dissector shows no %q", want)
				}
			}
			if t.Failed() {
				t.Logf("%s", text[max(0, len(text)-6000):])
			}
		})
	}
}

// A chunk is bytes of one direction, in the order in which they passed.
type chunk struct {
	fromDialer bool
	data       []byte
}

// recordSession runs SEND, WRITE, READ and a READ that is refused through a
// relay, and returns what passed as a pcap file.
func recordSession(t *testing.T, o Options) []byte {
	a, b := newEnd(t, New(o), rdma.QPConfig{}), newEnd(t, New(o), rdma.QPConfig{Access: rdma.AccessRemoteRead | rdma.AccessRemoteWrite})
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	var mu sync.Mutex
	var chunks []chunk
	var pumps sync.WaitGroup
	pump := func(dst, src net.Conn, fromDialer bool) {
		buf := make([]byte, 64<<10)
		for {
			n, err := src.Read(buf)
			if n > 0 {
				mu.Lock()
				chunks = append(chunks, chunk{fromDialer, bytes.Clone(buf[:n])})
				mu.Unlock()
				_, _ = dst.Write(buf[:n])
			}
			if err != nil {
				_ = dst.(*net.TCPConn).CloseWrite()
				return
			}
		}
	}
	pumps.Go(func() {
		in, err := relay.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		var both sync.WaitGroup
		both.Go(func() { pump(out, in, true) })
		both.Go(func() { pump(in, out, false) })
		both.Wait()
		_, _ = in.Close(), out.Close()
	})
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(t.Context())
		if err == nil {
			_, err = r.Accept(t.Context(), b.qp, rdma.ConnParams{PrivateData: []byte("welcome")})
		}
		accepted <- err
	}()
	am, bm := a.mr(8192, rdma.AccessLocalWrite), b.mr(8192, rdma.AccessLocalWrite|rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
	fill(am.Bytes(), 1)
	_, err = a.qp.Connect(t.Context(), relay.Addr().String(), rdma.ConnParams{PrivateData: []byte("hello")})
	check(t, err)
	check(t, <-accepted)
	sge := func(m rdma.MR, off uint64, n uint32) []rdma.SGE { return []rdma.SGE{{MR: m, Off: off, Len: n}} }
	remote := rdma.RemoteAddr{RKey: bm.RKey()}
	for _, n := range []uint32{0, 1, 2, 3, 5, 100} {
		b.recv(rdma.RecvWR{SGL: sge(bm, 4096, 256)})
		a.send(rdma.SendWR{Op: rdma.OpSend, SGL: sge(am, 0, n)})
		b.waitOK(1)
	}
	a.recv(rdma.RecvWR{SGL: sge(am, 4096, 256)})
	b.send(rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSolicited, SGL: sge(bm, 0, 64)})
	a.waitOK(1)
	for _, n := range []uint32{8, 1000, 4096} {
		a.send(rdma.SendWR{Op: rdma.OpRDMAWrite, SGL: sge(am, 0, n), Remote: remote},
			rdma.SendWR{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: sge(am, 4096, n), Remote: remote})
		a.waitOK(1)
	}
	a.send(rdma.SendWR{Op: rdma.OpRDMARead, SGL: sge(am, 0, 8), Remote: rdma.RemoteAddr{RKey: remote.RKey ^ 1}})
	a.wait(1)
	a.dead(rdma.ErrAccess)
	a.close()
	b.close()
	check(t, l.Close())
	check(t, relay.Close())
	pumps.Wait()
	return pcap(chunks)
}

// pcap wraps chunks as TCP segments of one connection, with its set-up. An
// FPDU gets a segment of its own, as MPA wants it on a real wire.
func pcap(chunks []chunk) []byte {
	le, be := binary.LittleEndian, binary.BigEndian
	out := le.AppendUint32(nil, 0xa1b2c3d4)
	out = le.AppendUint16(out, 2)
	out = le.AppendUint16(out, 4)
	out = append(out, make([]byte, 8)...)
	out = le.AppendUint32(out, 1<<18)
	out = le.AppendUint32(out, 101) // raw IP
	seq := map[bool]uint32{true: 1000, false: 5000}
	when := uint32(0)
	segment := func(fromDialer bool, flags byte, data []byte) {
		src, dst := uint16(40000), uint16(20000)
		ipSrc, ipDst := byte(1), byte(2)
		if !fromDialer {
			src, dst, ipSrc, ipDst = dst, src, ipDst, ipSrc
		}
		n := 40 + len(data)
		when++
		out = le.AppendUint32(out, 1700000000)
		out = le.AppendUint32(out, when)
		out = le.AppendUint32(out, uint32(n))
		out = le.AppendUint32(out, uint32(n))
		out = append(out, 0x45, 0)
		out = be.AppendUint16(out, uint16(n))
		out = append(out, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, ipSrc, 10, 0, 0, ipDst)
		out = be.AppendUint16(out, src)
		out = be.AppendUint16(out, dst)
		out = be.AppendUint32(out, seq[fromDialer])
		out = be.AppendUint32(out, seq[!fromDialer])
		out = append(out, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0)
		out = append(out, data...)
		seq[fromDialer] += uint32(len(data))
	}
	const syn, ack, psh = 2, 16, 8
	segment(true, syn, nil)
	seq[true]++
	segment(false, syn|ack, nil)
	seq[false]++
	segment(true, ack, nil)
	var pending [2][]byte
	var opened [2]bool
	for _, c := range chunks {
		i := 0
		if c.fromDialer {
			i = 1
		}
		pending[i] = append(pending[i], c.data...)
		for {
			p := pending[i]
			n := 0
			if !opened[i] {
				if len(p) >= mpaHeaderLen {
					if want := mpaHeaderLen + int(be.Uint16(p[mpaLengthOff:])); len(p) >= want {
						n, opened[i] = want, true
					}
				}
			} else {
				_, n, _, _ = nextFPDU(p, true)
			}
			if n == 0 {
				break
			}
			segment(c.fromDialer, psh|ack, p[:n])
			pending[i] = p[n:]
		}
	}
	return out
}
