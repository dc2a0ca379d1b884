package security

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// The flood: a program of its own, which knows the secret of a tenant, opens
// sessions and keeps as many scans in flight in each as it has credits for. It
// speaks the wire, so nothing of the client library holds it back. It is this test
// program, started again.

const (
	floodEnv      = "RDMAKV_TEST_FLOOD" // ADDRESS TENANT SECRET SESSIONS PREFIX
	floodInflight = 64
	floodReply    = 32 << 10
	floodSlot     = 512 // a request that is being sent
)

// floodMain is the program. It says "flooding" when every session has sent scans,
// ends with its standard input, and then says what it got.
func floodMain(line string) int {
	var addr, tenant, word, prefix string
	var sessions int
	if _, err := fmt.Sscan(line, &addr, &tenant, &word, &sessions, &prefix); err != nil {
		fmt.Fprintln(os.Stderr, floodEnv, err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if sessions == 0 { // what a program costs others that has nothing to do with the node
		fmt.Println("flooding")
		for ctx.Err() == nil {
		}
		return 0
	}
	var wg sync.WaitGroup
	var begun, answered, refused atomic.Int64
	dev, err := newFabric().Open(ctx, "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for range sessions {
		wg.Go(func() {
			f := &flooder{dev: dev, tenant: tenant, word: word, prefix: prefix, answered: &answered, refused: &refused}
			if err := f.run(ctx, addr, func() {
				if begun.Add(1) == int64(sessions) {
					fmt.Println("flooding")
				}
			}); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	wg.Wait()
	fmt.Println("answered", answered.Load(), "refused", refused.Load())
	return 0
}

// A flooder is one of its sessions.
type flooder struct {
	dev                  rdma.Device
	tenant, word, prefix string
	answered, refused    *atomic.Int64

	cq      rdma.CQ
	qp      rdma.QP
	mem     *mem.Block
	mr      rdma.MR
	in, out *wire.Seal
	id      uint64
	credits int
	flying  int
	free    []int // slots to send from
	welcome bool
}

func (f *flooder) postRecv(i int) {
	f.qp.PostRecv([]rdma.RecvWR{{ID: peerRecvBit | uint64(i), SGL: []rdma.SGE{{MR: f.mr, Off: uint64(i * floodReply), Len: floodReply}}}})
}

func (f *flooder) send(msg []byte) {
	slot := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.out.Seal(msg)
	off := (floodInflight+4)*floodReply + slot*floodSlot
	copy(f.mem.Bytes()[off:off+floodSlot], msg)
	f.qp.PostSend([]rdma.SendWR{{ID: uint64(slot), Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: f.mr, Off: uint64(off), Len: uint32(len(msg))}}}})
}

// run floods until ctx ends, or the server ends the session, which is no error.
func (f *flooder) run(ctx context.Context, addr string, begun func()) error {
	pd, err := f.dev.AllocPD()
	if err != nil {
		return err
	}
	if f.cq, err = f.dev.CreateCQ(1024); err != nil {
		return err
	}
	if f.mem, err = mem.Alloc((floodInflight+4)*floodReply+2*floodInflight*floodSlot, mem.Options{Tag: "flood"}); err != nil {
		return err
	}
	if f.mr, err = pd.RegMR(f.mem.Bytes(), rdma.AccessLocalWrite); err != nil {
		return err
	}
	if f.qp, err = pd.CreateQP(rdma.QPConfig{SendCQ: f.cq, RecvCQ: f.cq, Cap: rdma.QPCap{MaxSendWR: 2 * floodInflight, MaxRecvWR: 2 * floodInflight, MaxSGE: 1}}); err != nil {
		return err
	}
	for i := range floodInflight + 4 {
		f.postRecv(i)
	}
	for i := range 2 * floodInflight {
		f.free = append(f.free, i)
	}
	var nonce wire.Nonce
	rand.Read(nonce[:])
	connect := wire.AppendConnect(nil, []byte(f.word), wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Tenant: wire.TenantOf(f.tenant), Nonce: nonce})
	dctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	info, err := f.qp.Connect(dctx, addr, rdma.ConnParams{PrivateData: connect})
	if err != nil {
		return err
	}
	accept := wire.Unpad(info.PrivateData, wire.AcceptSize)
	f.out, f.in = wire.NewSeals([]byte(f.word), connect, accept)
	hello := wire.AppendHello(nil, 1, wire.Hello{ReplySize: floodReply, Name: []byte("flood")})
	wire.SetCredits(hello, 2)
	wire.SignHello(hello, []byte(f.word), connect, accept)
	f.id = 1
	f.send(hello)
	told := false
	var wcs [64]rdma.WC
	for ctx.Err() == nil {
		for f.welcome && f.credits > 0 && f.flying < floodInflight && len(f.free) > 0 {
			f.id++
			msg := wire.AppendScan(nil, f.id, wire.Scan{Prefix: []byte(f.prefix), KeysOnly: true})
			wire.SetFlags(msg, wire.FlagWantCredits)
			f.credits--
			f.flying++
			f.send(msg)
		}
		if f.flying > 0 && !told {
			told = true
			begun()
		}
		n, err := f.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		if n == 0 {
			if f.cq.Arm(); f.ended() {
				return nil
			}
			if n, _ = f.cq.Poll(wcs[:]); n == 0 {
				wctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				f.cq.Wait(wctx)
				cancel()
			}
		}
		for _, wc := range wcs[:n] {
			if err := f.complete(wc); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *flooder) ended() bool {
	select {
	case <-f.qp.Done():
		return true
	default:
		return false
	}
}

func (f *flooder) complete(wc rdma.WC) error {
	if wc.Status != rdma.StatusSuccess {
		return nil // the connection is ending
	}
	if wc.ID&peerRecvBit == 0 {
		f.free = append(f.free, int(wc.ID))
		return nil
	}
	i := int(wc.ID &^ peerRecvBit)
	msg := f.mem.Bytes()[i*floodReply:][:wc.ByteLen]
	if err := f.in.Open(msg); err != nil {
		return err
	}
	h, err := wire.ParseHeader(msg)
	if err != nil {
		return err
	}
	f.credits += int(h.Credits)
	switch {
	case h.ID == 1:
		if err := wire.ReplyError(h, wire.Body(msg)); err != nil {
			return err
		}
		f.welcome = true
	case h.Type == wire.TypeScan.Reply():
		f.flying--
		if err := wire.ReplyError(h, wire.Body(msg)); err == nil {
			f.answered.Add(1)
		} else {
			f.refused.Add(1)
		}
	}
	f.postRecv(i)
	return nil
}

// A flood is the program under way.
type flood struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string
	once  sync.Once
}

// startFlood returns when every session has scans in flight.
func startFlood(t *testing.T, addr, tenant, word string, sessions int, prefix string) *flood {
	t.Helper()
	f := &flood{t: t, cmd: exec.Command(os.Args[0], "-fabric", *fabricFlag), lines: make(chan string, 16)}
	f.cmd.Env = append(os.Environ(), floodEnv+"="+strings.Join([]string{addr, tenant, word, strconv.Itoa(sessions), prefix}, " "))
	f.cmd.Stderr = os.Stderr
	var err error
	if f.stdin, err = f.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.lines)
		text, buf := "", make([]byte, 256)
		for {
			n, err := out.Read(buf)
			text += string(buf[:n])
			for {
				line, rest, ok := strings.Cut(text, "\n")
				if !ok {
					break
				}
				f.lines <- line
				text = rest
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(f.kill)
	select {
	case line := <-f.lines:
		if line != "flooding" {
			t.Fatalf("the flood says %q", line)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("the flood does not begin")
	}
	return f
}

// kill ends the program without a message to its peers; the kernel closes its
// sockets.
func (f *flood) kill() {
	f.once.Do(func() {
		_ = f.cmd.Process.Kill()
		for range f.lines {
		}
		_ = f.cmd.Wait()
	})
}

// stop ends it and returns what it got.
func (f *flood) stop() (answered, refused int) {
	f.once.Do(func() {
		_ = f.stdin.Close()
		for line := range f.lines {
			_, _ = fmt.Sscanf(line, "answered %d refused %d", &answered, &refused)
		}
		if err := f.cmd.Wait(); err != nil {
			f.t.Error(errors.Join(errors.New("the flood"), err))
		}
	})
	return answered, refused
}
