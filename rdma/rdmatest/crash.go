package rdmatest

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// childEnv tells a re-executed test binary that it is the second process, and
// which part it plays.
const childEnv = "RDMATEST_CHILD"

func crashChecks() []check {
	return []check{
		{"server killed under reads", func(t *testing.T, cfg *Config) { checkServerKilled(t, cfg, rdma.OpRDMARead) }},
		{"server killed under sends", func(t *testing.T, cfg *Config) { checkServerKilled(t, cfg, rdma.OpSend) }},
		{"server killed when idle", func(t *testing.T, cfg *Config) { checkServerKilled(t, cfg, 0) }},
		{"client killed", checkClientKilled},
	}
}

// A child is the other process.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	dead  bool
}

// startChild runs this test binary again as one part of the suite. It is
// killed at the end of the test at the latest.
func startChild(t *testing.T, cfg *Config, part, arg string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(exe, "-test.run=^"+cfg.Child+"$", "-test.timeout=5m")}
	c.cmd.Env = append(os.Environ(), childEnv+"="+part+" "+arg)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	t.Cleanup(func() { c.kill(t) })
	return c
}

// line returns the rest of the next line that starts with prefix.
func (c *child) line(t *testing.T, prefix string) string {
	t.Helper()
	for c.lines.Scan() {
		if rest, ok := strings.CutPrefix(c.lines.Text(), prefix+" "); ok {
			return rest
		}
	}
	t.Fatalf("the child ended without %q: %v", prefix, c.lines.Err())
	return ""
}

// kill ends the child as a crash does, and waits until it is gone.
func (c *child) kill(t *testing.T) {
	t.Helper()
	if c.dead {
		return
	}
	c.dead = true
	if err := c.cmd.Process.Kill(); err != nil {
		t.Errorf("kill: %v", err)
	}
	_ = c.cmd.Wait() // says "signal: killed"
}

const crashRegion = 1 << 20

// Child plays the second process if this process was started for that, and
// returns at once otherwise. It does not return after it has played.
func Child(t *testing.T, cfg Config) {
	part, arg, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		return
	}
	cfg.defaults()
	// This process ends by itself after a while, also if its parent never ends it.
	time.AfterFunc(4*time.Minute, func() { os.Exit(3) })
	switch part {
	case "server":
		childServer(t, &cfg)
	case "client":
		childClient(t, &cfg, arg)
	default:
		t.Fatalf("unknown part %q", part)
	}
}

// childServer accepts one connection, tells about a region, receives for ever.
func childServer(t *testing.T, cfg *Config) {
	e := newEnd(t, cfg, "server")
	r := e.region(crashRegion, rdma.AccessRemoteRead|rdma.AccessLocalWrite)
	fill(r.bytes()[:crashRegion/2], 1)
	l := e.listen()
	fmt.Printf("listening %s\n", l.Addr())
	req, err := l.Accept(context.Background())
	e.check("Accept", err)
	// There are more receives than the parent sends before the end: where a
	// SEND completes without the peer's doing, only that keeps it from RNR.
	const depth = 1024
	qp := e.qp(rdma.QPConfig{Access: rdma.AccessRemoteRead, Cap: rdma.QPCap{MaxRecvWR: depth}})
	slot := func(i uint64) rdma.RecvWR {
		return rdma.RecvWR{ID: i, SGL: []rdma.SGE{r.sge(crashRegion/2, 4096)}}
	}
	for i := range uint64(depth) {
		_, err := qp.PostRecv([]rdma.RecvWR{slot(i)})
		e.check("PostRecv", err)
	}
	_, err = req.Accept(context.Background(), qp, rdma.ConnParams{})
	e.check("ConnRequest.Accept", err)
	fmt.Printf("region %d %d\n", r.mr.Addr(), r.mr.RKey())
	var wcs [16]rdma.WC
	for {
		n, err := rdma.Await(context.Background(), e.cq, wcs[:])
		e.check("Await", err)
		for _, wc := range wcs[:n] {
			if wc.Status != rdma.StatusSuccess {
				os.Exit(0) // the parent is done with this
			}
			_, err := qp.PostRecv([]rdma.RecvWR{slot(wc.ID)})
			e.check("PostRecv", err)
		}
	}
}

// checkServerKilled: the peer's process dies by SIGKILL while work is under
// way. Every work request completes once, reads that completed are whole, the
// QP says that the peer is gone, and everything can be closed.
func checkServerKilled(t *testing.T, cfg *Config, op rdma.Opcode) {
	for round := range 3 {
		c := startChild(t, cfg, "server", "")
		addr := c.line(t, "listening")
		bystander := newPair(t, cfg, pairOptions{})
		a := bystander.a
		const depth = 32
		qp := a.qp(rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: depth}})
		_, err := qp.Connect(t.Context(), addr, rdma.ConnParams{})
		a.check("Connect", err)
		var remote rdma.RemoteAddr
		if _, err := fmt.Sscan(c.line(t, "region"), &remote.Addr, &remote.RKey); err != nil {
			t.Fatal(err)
		}
		size := []int{64, 4096, 256 << 10}[round]
		sink := a.region(depth*size, rw(a))
		into := a.region(64, rdma.AccessLocalWrite)
		want := make([]byte, size)
		fill(want, 1)
		var recvs, ids []uint64
		for range 8 {
			recvs = append(recvs, a.recv(qp, into.sge(0, 64)))
		}
		// This keeps a window of work full until the connection is gone. The
		// kill comes when some of it is known to have been done.
		for i := 0; op != 0; i++ {
			if i >= depth {
				if wc := a.wait(ids[i-depth]); wc.Status != rdma.StatusSuccess {
					break
				}
			}
			wr := read(sink, i%depth*size, remote, size)
			if op == rdma.OpSend {
				wr = send(into, 0, 64)
			}
			ids = append(ids, a.post(qp, wr)...)
			if i == 3*depth+round {
				c.kill(t)
			}
		}
		if op == 0 {
			c.kill(t)
		}
		a.expectDone(qp, rdma.ErrPeerGone)
		a.check("Close", qp.Close())
		dead := false
		for i, id := range ids {
			wc := a.wait(id)
			switch {
			case wc.Status == rdma.StatusSuccess && dead:
				t.Fatalf("%v %d succeeded behind a failure", op, i)
			case wc.Status != rdma.StatusSuccess:
				dead = true
				if !isAny(wc.Status.Err(), rdma.ErrPeerGone, rdma.ErrFlushed) {
					t.Errorf("%v %d: %v", op, i, wc.Status)
				}
			case op == rdma.OpRDMARead && i+depth >= len(ids):
				expectBytes(t, "a READ that completed", sink.bytes()[i%depth*size:(i%depth+1)*size], want)
			}
		}
		for _, id := range recvs {
			a.class(id, rdma.ErrFlushed)
		}
		bystander.stillWorks()
	}
}

// childClient connects to the parent and READs and SENDs until it dies.
func childClient(t *testing.T, cfg *Config, addr string) {
	e := newEnd(t, cfg, "client")
	sink, said := e.region(crashRegion, rw(e)), e.region(8, 0)
	qp := e.qp(rdma.QPConfig{})
	info, err := qp.Connect(context.Background(), addr, rdma.ConnParams{})
	e.check("Connect", err)
	remote := rdma.RemoteAddr{
		Addr: binary.LittleEndian.Uint64(info.PrivateData),
		RKey: binary.LittleEndian.Uint32(info.PrivateData[8:]),
	}
	for {
		var wrs []rdma.SendWR
		for range 4 {
			wrs = append(wrs, read(sink, 0, remote, crashRegion))
		}
		ids := e.post(qp, append(wrs, send(said, 0, 8))...)
		e.wait(ids[len(ids)-1])
		e.mu.Lock()
		clear(e.posted) // the books of a process that is about to be killed
		clear(e.got)
		e.order = nil
		e.mu.Unlock()
	}
}

// checkClientKilled: a server's peer dies while it is being served.
func checkClientKilled(t *testing.T, cfg *Config) {
	for range 3 {
		bystander := newPair(t, cfg, pairOptions{})
		b := bystander.b
		l := b.listen()
		c := startChild(t, cfg, "client", l.Addr().String())
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		req, err := l.Accept(ctx)
		b.check("Accept", err)
		src, into := b.region(crashRegion, rdma.AccessRemoteRead), b.region(64, rdma.AccessLocalWrite)
		const depth = 1000 // far more than the client can use before it dies
		qp := b.qp(rdma.QPConfig{Access: rdma.AccessRemoteRead, Cap: rdma.QPCap{MaxRecvWR: depth}})
		var recvs []uint64
		for range depth {
			recvs = append(recvs, b.recv(qp, into.sge(0, 64)))
		}
		tell := binary.LittleEndian.AppendUint64(nil, src.mr.Addr())
		tell = binary.LittleEndian.AppendUint32(tell, src.mr.RKey())
		_, err = req.Accept(ctx, qp, rdma.ConnParams{PrivateData: tell})
		b.check("ConnRequest.Accept", err)
		b.ok(recvs[2]) // it is in full swing
		c.kill(t)
		b.expectDone(qp, rdma.ErrPeerGone)
		b.check("Close", qp.Close())
		b.check("MR.Close", src.mr.Close())
		b.check("Free", src.block.Free())
		for i, id := range recvs {
			if wc := b.wait(id); wc.Status != rdma.StatusSuccess {
				b.class(id, rdma.ErrFlushed, rdma.ErrPeerGone)
			} else if i == len(recvs)-1 {
				t.Error("every receive was used: the client was not under way")
			}
		}
		bystander.stillWorks()
	}
}
