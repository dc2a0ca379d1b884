package siw_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// A process that is killed says no goodbye; its kernel does. The other end must
// learn of it and get back what it has posted.

// childEnv tells the second process what to be and which address to dial.
const childEnv = "RDMAKV_SIW_CHILD"

// TestChild is that process: it connects, says so, and waits to be killed. By
// itself it does nothing.
func TestChild(t *testing.T) {
	by, addr, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		return
	}
	e := newEnd(t, maker(by), maker(by).open(t, siwPort(t), iwarp.Options{}))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := e.qp.Connect(ctx, addr, rdma.ConnParams{}); err != nil {
		t.Fatal(err)
	}
	e.check("SetAccess", e.qp.SetAccess(rdma.AccessRemoteRead))
	src := e.region(e.pd, 4096, rdma.AccessRemoteRead)
	out := e.region(e.pd, 64, 0)
	n := copy(out.Bytes(), fmt.Sprintf("%d %d", src.Addr(), src.RKey()))
	e.ok(e.post(rdma.SendWR{Op: rdma.OpSend, SGL: sge(out, n)}))
	fmt.Println("connected")
	time.Sleep(patience)
	t.Error("nobody has killed this process")
}

func TestKill(t *testing.T) {
	eachPair(t, func(t *testing.T, at port, dialer, acceptor maker) {
		e := newEnd(t, acceptor, acceptor.open(t, at, iwarp.Options{}))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l, err := e.dev.Listen(ctx, at.addr+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$", "-test.v")
		child.Env = append(os.Environ(), childEnv+"="+string(dialer)+" "+l.Addr().String())
		stdout, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
		req, err := l.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		hello := e.region(e.pd, 64, rdma.AccessLocalWrite)
		came := e.recv(hello)
		left := e.recv(hello)
		if _, err := req.Accept(ctx, e.qp, rdma.ConnParams{}); err != nil {
			t.Fatal(err)
		}
		wc := e.ok(came)
		var from rdma.RemoteAddr
		if _, err := fmt.Sscan(string(hello.Bytes()[:wc.ByteLen]), &from.Addr, &from.RKey); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(stdout); lines.Scan() && lines.Text() != "connected"; {
		}
		// READs go on until the process is gone, and then end.
		sink := e.sink(4096)
		killed := make(chan error, 1)
		served := 0
		for {
			wc := e.wait(e.post(rdma.SendWR{Op: rdma.OpRDMARead, SGL: sge(sink, 4096), Remote: from}))
			if wc.Status != rdma.StatusSuccess {
				break
			}
			if served++; served == 10 {
				go func() { killed <- child.Process.Kill() }()
			}
		}
		if served < 10 {
			t.Fatalf("the READs ended after %d: %v", served, e.dead())
		}
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
		if err := e.dead(); !errors.Is(err, rdma.ErrPeerGone) {
			t.Errorf("the connection ended with %v, want %v", err, rdma.ErrPeerGone)
		}
		if wc := e.wait(left); wc.Status != rdma.StatusWRFlushErr {
			t.Errorf("the receive ended with %v, want %v", wc.Status, rdma.StatusWRFlushErr)
		}
	})
}
