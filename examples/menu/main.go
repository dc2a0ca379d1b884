// Menu connects two processes by RDMA and lets you do the four things that RDMA
// can do, one at a time, from a menu: read the other process's memory, write to
// it, send it a message, receive one. Everything that happens before (which
// usually a library does) is done here by hand and printed: device, protection
// domain, memory region, completion queue, queue pair, and the states it goes
// through.
//
//	menu -listen 10.77.0.1:7420             on one terminal
//	menu -connect 10.77.0.1:7420            on another
//	printf 'write hello\nmeet\nquit\n' | menu -connect 10.77.0.1:7420
//
// On a machine without any RDMA device, add -fabric iwarp: the menu is the same,
// the connection is made by the fabric.
//
// Read main.go, exchange.go, byhand.go, menu.go, in this order. The page is
// docs/learn/menu.md.
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
	"time"
)

// Sizes in bytes. The window is what the peer may read and write; a message is
// as long at most.
const (
	windowSize = 256
	slots      = 4 // receives that are always posted
)

// An endpoint is our end of the connection. byhand.go makes one of the verbs
// themselves, overiwarp.go one of package rdma.
type endpoint interface {
	// card is what the peer has to know of us.
	card() card
	// connect takes the queue pair to RTS, given the peer's card. Of the two
	// ends, one is told to dial.
	connect(ctx context.Context, peer card, dial bool) error
	// read fetches n bytes from the start of the peer's window by RDMA READ.
	read(ctx context.Context, n int) ([]byte, error)
	// write puts b at the start of the peer's window by RDMA WRITE.
	write(ctx context.Context, b []byte) error
	// send sends b as a message.
	send(ctx context.Context, b []byte) error
	// receive waits for the next message, in the order of their sending.
	receive(ctx context.Context) ([]byte, error)
	// window is our own memory that the peer may read and write.
	window() []byte
	// describe names the objects that were made, for the menu's show.
	describe() string
	close() error
}

type config struct {
	listen, connect string
	fabric, device  string
	port, gidIndex  int
	timeout         time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "menu:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	var c config
	f := flag.NewFlagSet("menu", flag.ContinueOnError)
	f.StringVar(&c.listen, "listen", "", "TCP `host:port` at which to wait for the other process")
	f.StringVar(&c.connect, "connect", "", "TCP `host:port` of the process that listens")
	f.StringVar(&c.fabric, "fabric", "verbs", "verbs (a device, by hand) or iwarp (software, no device)")
	f.StringVar(&c.device, "device", "", "`name` of the RDMA device, as ibv_devices prints it (the first one)")
	f.IntVar(&c.port, "port", 1, "`number` of the device's port")
	f.IntVar(&c.gidIndex, "gid", -1, "`index` into the port's GID table (chosen)")
	f.DurationVar(&c.timeout, "timeout", time.Minute, "longest wait for the peer")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case (c.listen == "") == (c.connect == ""):
		return errors.New("one of -listen and -connect is needed")
	case c.fabric != "verbs" && c.fabric != "iwarp":
		return fmt.Errorf("-fabric %q is neither verbs nor iwarp", c.fabric)
	case c.port < 1 || c.port > 255:
		return fmt.Errorf("-port %d is not within 1 and 255", c.port)
	}

	conn, err := meetOverTCP(ctx, c, out)
	if err != nil {
		return err
	}
	defer conn.Close()
	// An interrupt ends a wait on the socket.
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return session(ctx, c, conn, in, out)
}

// meetOverTCP gives the plain TCP connection over which the two processes tell
// each other what they must know to connect by RDMA. Nothing else goes over it,
// except "meet" in the menu. The verbs do not care how the cards (exchange.go)
// get across: a file or a telephone would do.
func meetOverTCP(ctx context.Context, c config, out io.Writer) (net.Conn, error) {
	if c.connect != "" {
		dialer := net.Dialer{Timeout: c.timeout}
		return dialer.DialContext(ctx, "tcp", c.connect)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.listen)
	if err != nil {
		return nil, err
	}
	defer l.Close() // one peer is enough
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintln(out, "waiting for the other process at", l.Addr())
	return l.Accept()
}

// session makes the endpoint, connects it and shows the menu.
func session(ctx context.Context, c config, conn net.Conn, in io.Reader, out io.Writer) (err error) {
	var ep endpoint
	if c.fabric == "iwarp" {
		ep, err = newOverIWARP(ctx, conn, out)
	} else {
		ep, err = newByHand(c, out)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ep.close()) }()

	name := "server"
	if c.connect != "" {
		name = "client"
	}
	copy(ep.window(), "this is the "+name+"'s memory")

	peer, err := exchange(conn, ep.card(), c.timeout)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "mine:  ", ep.card())
	fmt.Fprintln(out, "peer's:", peer)
	setup, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := ep.connect(setup, peer, c.connect != ""); err != nil {
		return err
	}
	// Both are ready to send now, but each knows it of itself only. A message
	// to a queue pair that is not yet ready to receive is lost, and repeated
	// by the card until it gives up: so wait for each other once.
	if err := meet(conn, c.timeout); err != nil {
		return err
	}
	fmt.Fprintln(out, "connected")
	m := menu{ep: ep, conn: conn, timeout: c.timeout, in: in, out: out}
	return m.loop(ctx)
}
