// Pingpong sends a message to and fro over one reliable connection (RC) and
// says how long a round takes. It shows the two ways to learn that work is
// done: to poll the completion queue in a loop, or to sleep until the completion
// channel has an event. Each end chooses its own.
//
//	pingpong -listen 10.77.0.1:7410                          on one terminal
//	pingpong -connect 10.77.0.1:7410 -n 1000 -wait poll      on another
//	pingpong -connect 10.77.0.1:7410 -n 1000 -wait event
//
// On a machine without any RDMA device: -fabric iwarp, and 127.0.0.1. See
// docs/learn/pingpong.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/rdmakv/rdmakv/examples/internal/nic"
	"github.com/rdmakv/rdmakv/rdma"
)

// maxSize bounds -size in bytes, and with it what a server accepts. maxRounds
// bounds -n: each round is kept, for the percentiles.
const (
	maxSize   = 64 << 10
	maxRounds = 1 << 27
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "pingpong:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("pingpong", flag.ContinueOnError)
	listen := f.String("listen", "", "`host:port` to be the server at")
	connect := f.String("connect", "", "`host:port` of the server")
	rounds := f.Int("n", 1000, "number of rounds")
	size := f.Int("size", 64, "`bytes` of a message")
	how := f.String("wait", "event", "how to wait for completions: poll or event")
	fabricName := f.String("fabric", nic.Default, nic.Fabrics)
	device := f.String("device", "", "`name` of the device (chosen by the address)")
	timeout := f.Duration("timeout", 10*time.Second, "longest wait for one message")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case (*listen == "") == (*connect == ""):
		return errors.New("one of -listen and -connect is needed")
	case *size < 1 || *size > maxSize:
		return fmt.Errorf("-size %d is not within 1 and %d", *size, maxSize)
	case *rounds < 1 || *rounds > maxRounds:
		return fmt.Errorf("-n %d is not within 1 and %d", *rounds, maxRounds)
	case *how != "poll" && *how != "event":
		return fmt.Errorf("-wait %q is neither poll nor event", *how)
	}
	wait := waitEvent
	if *how == "poll" {
		wait = waitPoll
	}

	fabric, err := nic.Fabric(*fabricName)
	if err != nil {
		return err
	}
	side, addr := nic.Listen, *listen
	if *connect != "" {
		side, addr = nic.Dial, *connect
	}
	dev, addr, err := nic.Open(ctx, fabric, *device, addr, side)
	if err != nil {
		return err
	}
	if side == nic.Dial {
		err = client(ctx, dev, addr, wait, *timeout, *rounds, *size, out)
		return errors.Join(err, dev.Close())
	}
	return errors.Join(server(ctx, dev, addr, wait, *timeout, out), dev.Close())
}

// server sends back what comes, for one client after the other.
func server(ctx context.Context, dev rdma.Device, addr string, wait waitFunc, timeout time.Duration, out io.Writer) (err error) {
	l, err := dev.Listen(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	fmt.Fprintf(out, "listening at %v over %s (%s)\n", l.Addr(), dev.Attr().Fabric, dev.Name())
	for {
		req, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil // interrupted: the usual end of a server
			}
			return err
		}
		n, err := echo(ctx, dev, req, wait, timeout)
		fmt.Fprintf(out, "client %v: %d rounds, ended: %v\n", req.RemoteAddr(), n, err)
	}
}

// echo serves one client until the connection ends and says why it ended.
func echo(ctx context.Context, dev rdma.Device, req rdma.ConnRequest, wait waitFunc, timeout time.Duration) (rounds int, err error) {
	e, err := newEnd(dev, wait)
	if err != nil {
		return 0, errors.Join(err, req.Reject(nil))
	}
	defer func() { err = errors.Join(err, e.close()) }()
	setup, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := req.Accept(setup, e.qp, rdma.ConnParams{}); err != nil {
		return 0, err
	}
	for ; ; rounds++ {
		n, err := e.recv(ctx, timeout)
		if err == nil {
			err = e.send(ctx, timeout, n)
		}
		if errors.Is(err, rdma.ErrFlushed) {
			// The connection is down, and our receive came back unused. (Or our
			// last answer came back: the client may leave as soon as it has it,
			// before its card has told ours that it arrived.)
			<-e.qp.Done()
			return rounds, e.qp.Err()
		}
		if err != nil {
			return rounds, err
		}
	}
}

// client plays the rounds and prints what they took.
func client(ctx context.Context, dev rdma.Device, addr string, wait waitFunc, timeout time.Duration, rounds, size int, out io.Writer) (err error) {
	e, err := newEnd(dev, wait)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	setup, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := e.qp.Connect(setup, addr, rdma.ConnParams{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "connected to %v over %s (%s)\n", conn.RemoteAddr, dev.Attr().Fabric, dev.Name())

	// The first rounds touch everything for the first time (pages, caches,
	// goroutine stacks): they are played and not counted.
	warmUp := min(50, rounds)
	took := make([]time.Duration, 0, min(rounds, 1<<16)) // and grows
	for i := range warmUp + rounds {
		start := time.Now()
		if err := e.send(ctx, timeout, size); err != nil {
			return err
		}
		n, err := e.recv(ctx, timeout)
		if err != nil {
			return err
		}
		if n != size {
			return fmt.Errorf("round %d: sent %d bytes, %d came back", i, size, n)
		}
		if i >= warmUp {
			took = append(took, time.Since(start))
		}
	}
	report(out, took, size)
	return nil
}
