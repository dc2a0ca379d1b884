// Rping is rdma-core's rping in Go, and speaks with it: the client tells the
// server where a buffer of its memory is, the server READs it, and WRITEs it
// back into another one. It shows the three ways to move bytes at once: SEND
// for the small messages, RDMA READ and RDMA WRITE for the data.
//
//	rping -s -a 10.77.0.1 -v                 on one terminal
//	rping -c -a 10.77.0.1 -v -V -C 10        on another
//
// The options are those of rping(1), with -fabric and -device added: on a machine
// without any RDMA device, -fabric iwarp and 127.0.0.1. See docs/learn/rping.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/rdmakv/rdmakv/examples/internal/nic"
	"github.com/rdmakv/rdmakv/rdma"
)

// Bounds of -S in bytes. The counter in front of the data must fit, and rping(1)
// takes no more than 64 KiB less one.
const (
	minSize = 32
	maxSize = 64<<10 - 1
)

// Config is the command line.
type Config struct {
	Server, Client bool
	Persistent     bool
	Addr           string // host
	Port           int
	Count          int // rounds; 0: for ever
	Size           int // bytes of data in each direction
	Verbose        bool
	Validate       bool
	Fabric, Device string
	Timeout        time.Duration // of every single step
}

func main() {
	// An interrupt ends every wait below through ctx.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "rping:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var c Config
	f := flag.NewFlagSet("rping", flag.ContinueOnError)
	f.BoolVar(&c.Server, "s", false, "be the server")
	f.BoolVar(&c.Client, "c", false, "be the client")
	f.BoolVar(&c.Persistent, "P", false, "server: serve one client after the other, for ever")
	f.StringVar(&c.Addr, "a", "", "`address`: the server's; for the server the one to listen at (all of them)")
	f.IntVar(&c.Port, "p", 7174, "port")
	f.IntVar(&c.Count, "C", 0, "client: number of rounds; 0 means for ever")
	f.IntVar(&c.Size, "S", 64, "size of the data in `bytes`; a server takes clients with no more than its own")
	f.BoolVar(&c.Verbose, "v", false, "print the data")
	f.BoolVar(&c.Validate, "V", false, "client: compare what comes back with what was sent")
	f.StringVar(&c.Fabric, "fabric", nic.Default, nic.Fabrics)
	f.StringVar(&c.Device, "device", "", "`name` of the device (chosen by the address)")
	f.DurationVar(&c.Timeout, "timeout", 10*time.Second, "longest wait for any single step")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := c.check(f.Args()); err != nil {
		return err
	}

	fabric, err := nic.Fabric(c.Fabric)
	if err != nil {
		return err
	}
	side := nic.Listen
	if c.Client {
		side = nic.Dial
	}
	dev, addr, err := nic.Open(ctx, fabric, c.Device, net.JoinHostPort(c.Addr, strconv.Itoa(c.Port)), side)
	if err != nil {
		return err
	}
	if c.Client {
		err = client(ctx, dev, addr, c, out)
	} else {
		err = server(ctx, dev, addr, c, out)
	}
	return errors.Join(err, dev.Close())
}

func (c *Config) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case c.Server == c.Client:
		return errors.New("one of -s (server) and -c (client) is needed")
	case c.Client && c.Addr == "":
		return errors.New("-c needs -a, the server's address")
	case c.Size < minSize || c.Size > maxSize:
		return fmt.Errorf("-S %d is not within %d and %d", c.Size, minSize, maxSize)
	case c.Count < 0:
		return fmt.Errorf("-C %d is negative", c.Count)
	case c.Port < 0 || c.Port > 65535:
		return fmt.Errorf("-p %d is not within 0 and 65535", c.Port)
	}
	return nil
}

// failed says why a work request did not succeed: its own status, and why the
// queue pair died. Both matter, because the first error kills the connection and
// everything behind it is only "flushed".
func failed(what string, qp rdma.QP, wc rdma.WC) error {
	return fmt.Errorf("%s: %w", what, errors.Join(wc.Status.Err(), qp.Err()))
}
