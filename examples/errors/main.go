// Errors makes RDMA fail on purpose, in every way that a program meets sooner or
// later, shows what each failure looks like, and recovers from it. Both ends of
// the connection are in this one process, so that both can be watched.
//
//	errors                        on a machine with an RDMA device
//	errors -fabric iwarp          anywhere
//	errors -only access           one of them: rnr, flush, access, length, local, gone
//
// scenes.go is the part to read: what is done wrong, and what it looks like.
// byhand.go does it with the verbs and recovers a queue pair by taking it through
// RESET; overiwarp.go does it with package rdma, where one takes a new one. The
// page is docs/learn/errors.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A pair is a client and a server, connected to each other.
type pair interface {
	// connect connects the two, for the first time or again after an error,
	// and says how that was done.
	connect(ctx context.Context, o options) (how string, err error)
	client() end
	server() end
	// settle waits until an error of one end has reached the other, where it does.
	settle(ctx context.Context)
	// retriesRNR: a SEND that meets no receive is tried again.
	retriesRNR() bool
	// events returns the asynchronous events that came since it was called last.
	events() []string
	close() error
}

// options of one connection.
type options struct {
	receives int         // posted by the server before the client can send
	rights   rdma.Access // what the client may do at the server's queue pair
	patient  bool        // try a SEND again for as long as the peer has no receive for it
}

// An end is one of the two. It posts work requests, each with an ID that the
// caller chooses and that no other one outstanding at this end has.
type end interface {
	postRecv(id uint64, n int) error
	send(id uint64, n int) error
	read(id uint64, from target, n int) error
	// sendForeign posts a SEND of memory that is not registered.
	sendForeign(id uint64) error
	// wait returns the status of work request id.
	wait(ctx context.Context, id uint64) (rdma.Status, error)
	// state is that of the queue pair, and why it is in ERR if that is known.
	state() string
	// abort puts the queue pair into ERR.
	abort() error
	// vanish ends it without telling the peer, as a crash would.
	vanish() error
	// memory is what the peer may read.
	memory() target
}

// A target is memory as the peer names it.
type target struct {
	addr uint64
	rkey uint32
	size int
}

// Sizes in bytes.
const (
	memorySize  = 4096
	receiveSize = 64
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "errors:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	f := flag.NewFlagSet("errors", flag.ContinueOnError)
	fabric := f.String("fabric", "verbs", "verbs (a device, by hand) or iwarp (software, no device)")
	device := f.String("device", "", "`name` of the RDMA device, as ibv_devices prints it (the first one)")
	only := f.String("only", "", "play one `scene`: "+strings.Join(sceneNames(), ", "))
	timeout := f.Duration("timeout", 30*time.Second, "longest wait for any single step")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	var p pair
	switch *fabric {
	case "verbs":
		p, err = newByHand(ctx, *device)
	case "iwarp":
		p, err = newOverIWARP(ctx)
	default:
		err = fmt.Errorf("-fabric %q is neither verbs nor iwarp", *fabric)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()

	played := 0
	for _, s := range scenes {
		if *only != "" && *only != s.name {
			continue
		}
		played++
		fmt.Fprintf(out, "== %s: %s\n", s.name, s.title)
		st := &stage{pair: p, timeout: *timeout, out: out}
		if err := s.play(ctx, st); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintln(out)
	}
	if played == 0 {
		return fmt.Errorf("-only %q: there are %s", *only, strings.Join(sceneNames(), ", "))
	}
	return nil
}
