// Cm connects two processes with the connection manager (librdmacm) and prints
// every step and every event on the way. The connection manager does what a TCP
// socket and a card full of numbers do in example menu: it finds the device that
// leads to an IP address, carries the QP numbers across, and tells each end when
// the other is ready, or has gone.
//
//	cm -listen 10.77.0.1:7430               on one terminal
//	cm -connect 10.77.0.1:7430              on another
//	cm -listen 10.77.0.1:7430 -reject       a server that refuses
//
// Read client.go and server.go side by side, then endpoint.go. The page is
// docs/learn/cm.md. It needs an RDMA device: RoCE, InfiniBand or iWARP, a card or
// the kernel's software ones.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

type config struct {
	listen, connect string
	reject          bool
	count           int
	timeout         time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "cm:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var c config
	f := flag.NewFlagSet("cm", flag.ContinueOnError)
	f.StringVar(&c.listen, "listen", "", "`ip:port` to be the server at; 0.0.0.0 for every device")
	f.StringVar(&c.connect, "connect", "", "`ip:port` of the server")
	f.BoolVar(&c.reject, "reject", false, "server: refuse whoever comes")
	f.IntVar(&c.count, "count", 1, "server: `number` of clients to serve; 0 means for ever")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "longest wait for any single event")
	if err := f.Parse(args); err != nil {
		return err
	}
	addr := c.listen + c.connect
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case (c.listen == "") == (c.connect == ""):
		return errors.New("one of -listen and -connect is needed")
	case c.count < 0:
		return fmt.Errorf("-count %d is negative", c.count)
	}
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return fmt.Errorf("%q is no address like 10.77.0.1:7430: %w", addr, err)
	}
	if c.connect != "" {
		return client(ctx, at, c, out)
	}
	return server(ctx, at, c, out)
}

// events is the event channel: all events of the connection manager come here,
// for all the identifiers that were made on it.
type events struct {
	ch      *ibv.EventChannel
	timeout time.Duration
	out     io.Writer
}

func newEvents(c config, out io.Writer) (*events, error) {
	ch, err := ibv.NewEventChannel() // rdma_create_event_channel
	if err != nil {
		return nil, err
	}
	return &events{ch: ch, timeout: c.timeout, out: out}, nil
}

// expect waits for the next event, which must be of one of the given types. The
// wait has an end of its own: the connection manager may try for minutes, without
// an event, to reach a server that is stopped or a host that has vanished.
func (e *events) expect(ctx context.Context, want ...ibv.CMEventType) (ibv.CMEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	ev, err := e.ch.Get(ctx) // rdma_get_cm_event, and rdma_ack_cm_event
	if err != nil {
		return ev, fmt.Errorf("waiting for %v: %w", want, err)
	}
	fmt.Fprintf(e.out, "        event %v, status %d\n", ev.Type, ev.Status)
	for _, w := range want {
		if ev.Type == w {
			return ev, nil
		}
	}
	return ev, fmt.Errorf("got the event %v in place of %v: %s", ev.Type, want, meaning(ev))
}

// meaning explains the events that end an attempt.
func meaning(ev ibv.CMEvent) string {
	switch ev.Type {
	case ibv.CMAddrError:
		return "no device leads to that address, or nobody there answers ARP"
	case ibv.CMRouteError:
		return "the subnet manager knows no path"
	case ibv.CMUnreachable:
		return "the host does not answer"
	case ibv.CMConnectError:
		return "the connection could not be set up"
	case ibv.CMRejected:
		// The reasons are those of the InfiniBand architecture (table of REJ
		// reasons, section 12.6.7.2). On iWARP the status is an errno, and if no
		// program listens at the port Connect itself fails.
		const noListener, consumer = 8, 28
		if ev.Status == noListener {
			return "nobody listens at that port"
		}
		if ev.Status == consumer || ev.Status < 0 {
			return fmt.Sprintf("the server refused, and says %q", printable(ev.Param.PrivateData))
		}
		return fmt.Sprintf("rejected for reason %d", ev.Status)
	case ibv.CMDisconnected:
		return "the peer has hung up"
	case ibv.CMDeviceRemoval:
		return "the device is being taken away"
	}
	return "out of place"
}
