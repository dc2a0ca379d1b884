package iwarp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// The flood: one protection domain whose peers READ as much as they can, and
// another with a peer that READs 64 bytes at a time. Responder, flood and victim
// are processes of their own, so that only what they do to each other inside the
// responder is seen, beside the kernel's sharing of the processors.
const (
	floodRole  = "IWARP_FLOOD_ROLE"
	floodPlace = "IWARP_FLOOD_PLACE" // ADDR STAG of the flooded domain
	floodBytes = 1 << 20
	floodDepth = 8
)

// BenchmarkUnderFlood reports what the victim's READs, small and large, take
// beside 0, 4 and 32 flooding connections of one other domain, and what those get.
func BenchmarkUnderFlood(b *testing.B) {
	responder := startRole(b, "responder", "")
	line, err := bufio.NewReader(responder).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	var victimAt, floodAt string
	var victimTag, floodTag uint32
	if _, err := fmt.Sscan(line, &victimAt, &victimTag, &floodAt, &floodTag); err != nil {
		b.Fatal(line, err)
	}
	for _, n := range []int{0, 4, 32} {
		for _, size := range []uint32{64, 1 << 20} {
			b.Run(fmt.Sprintf("flooders=%d/size=%d", n, size), func(b *testing.B) {
				flooded := new(atomic.Int64) // bytes
				if n > 0 {
					flood := bufio.NewReader(startRole(b, fmt.Sprintf("flood %d", n), fmt.Sprint(floodAt, " ", floodTag)))
					readCount(flood, flooded)
					go func() {
						for readCount(flood, flooded) {
						}
					}()
				}
				e := newFloodEnd(b, victimAt)
				defer e.close()
				var took []time.Duration
				begun, before := time.Now(), flooded.Load()
				for time.Since(begun) < 4*time.Second {
					at := time.Now()
					e.read(b, victimTag, size, 1)
					took = append(took, time.Since(at))
					time.Sleep(200 * time.Microsecond)
				}
				b.ReportMetric(float64(flooded.Load()-before)/time.Since(begun).Seconds()/(1<<20), "flood-MiB/s")
				slices.Sort(took)
				for name, q := range map[string]float64{"p50-us": 0.5, "p99-us": 0.99, "p999-us": 0.999} {
					b.ReportMetric(float64(took[int(q*float64(len(took)-1))].Nanoseconds())/1000, name)
				}
				b.ReportMetric(float64(len(took)), "reads")
			})
		}
	}
}

// readCount reads a line of a flood: the bytes that it has READ so far.
func readCount(r *bufio.Reader, n *atomic.Int64) bool {
	line, err := r.ReadString('\n')
	v, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	n.Store(max(v, n.Load()))
	return err == nil
}

// TestFloodRole is the body of the processes; it does nothing without a role.
func TestFloodRole(t *testing.T) {
	switch role, rest, _ := strings.Cut(os.Getenv(floodRole), " "); role {
	case "responder":
		floodResponder(t)
	case "flood":
		var n int
		fmt.Sscan(rest, &n)
		floodFlood(t, n)
	}
}

// startRole starts a process that lives until the end of the test and returns
// what it prints.
func startRole(b *testing.B, role, place string) io.Reader {
	cmd := exec.Command(os.Args[0], "-test.run=^TestFloodRole$")
	cmd.Env = append(os.Environ(), floodRole+"="+role, floodPlace+"="+place)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return out
}

func floodResponder(t *testing.T) {
	dev, err := New(Options{}).Open(context.Background(), "")
	check(t, err)
	var line []any
	for range 2 {
		pd, err := dev.AllocPD()
		check(t, err)
		mr, err := pd.RegMR(make([]byte, 4<<20), rdma.AccessRemoteRead)
		check(t, err)
		l, err := dev.Listen(context.Background(), "127.0.0.1:0")
		check(t, err)
		go func() {
			for {
				req, err := l.Accept(context.Background())
				if err != nil {
					return
				}
				cq, err := dev.CreateCQ(64)
				check(t, err)
				qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq, Access: rdma.AccessRemoteRead})
				check(t, err)
				if _, err := req.Accept(context.Background(), qp, rdma.ConnParams{}); err != nil {
					qp.Close()
				}
			}
		}()
		line = append(line, l.Addr(), mr.RKey())
	}
	fmt.Println(line...)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
	os.Exit(0)
}

func floodFlood(t *testing.T, n int) {
	var addr string
	var stag uint32
	fmt.Sscan(os.Getenv(floodPlace), &addr, &stag)
	var bytes atomic.Int64
	for range n {
		e := newFloodEnd(t, addr)
		go func() {
			for {
				e.read(t, stag, floodBytes, floodDepth)
				bytes.Add(floodBytes * floodDepth)
			}
		}()
	}
	for { // until the parent ends us
		time.Sleep(500 * time.Millisecond)
		fmt.Println(bytes.Load())
	}
}

// A floodEnd is a connected QP that READs.
type floodEnd struct {
	pd rdma.PD
	cq rdma.CQ
	qp rdma.QP
	mr rdma.MR
}

func newFloodEnd(t testing.TB, addr string) *floodEnd {
	dev, err := New(Options{}).Open(context.Background(), "")
	check(t, err)
	e := &floodEnd{}
	e.pd, err = dev.AllocPD()
	check(t, err)
	e.cq, err = dev.CreateCQ(256)
	check(t, err)
	e.mr, err = e.pd.RegMR(make([]byte, floodBytes), rdma.AccessLocalWrite)
	check(t, err)
	e.qp, err = e.pd.CreateQP(rdma.QPConfig{SendCQ: e.cq, RecvCQ: e.cq})
	check(t, err)
	_, err = e.qp.Connect(context.Background(), addr, rdma.ConnParams{})
	check(t, err)
	return e
}

func (e *floodEnd) close() { e.qp.Close() }

// read posts n READs and waits for them.
func (e *floodEnd) read(t testing.TB, stag uint32, size uint32, n int) {
	wrs := make([]rdma.SendWR, n)
	for i := range wrs {
		wrs[i] = rdma.SendWR{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: e.mr, Len: size}}, Remote: rdma.RemoteAddr{RKey: stag}}
	}
	_, err := e.qp.PostSend(wrs)
	check(t, err)
	var wcs [16]rdma.WC
	for n > 0 {
		got, err := e.cq.Poll(wcs[:])
		check(t, err)
		for _, wc := range wcs[:got] {
			check(t, wc.Status.Err())
		}
		if n -= got; n <= 0 || got > 0 {
			continue
		}
		check(t, e.cq.Arm())
		if got, _ := e.cq.Poll(wcs[:]); got > 0 {
			n -= got
			continue
		}
		check(t, e.cq.Wait(context.Background()))
	}
}
