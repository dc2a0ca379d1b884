//go:build linux

// Command agent runs inside a guest of the lab and starts programs there for
// the host (on a virtio serial port) and for other guests (on TCP). It can also
// run on a machine with a NIC, on TCP alone, for the time of a test: every
// process that reaches its port can then do there what its user can.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"os"

	"github.com/rdmakv/rdmakv/lab/agent"
)

func main() {
	serial := flag.String("serial", "", "the virtio serial port to the host; the agent ends with it")
	listen := flag.String("listen", "", "HOST:PORT to listen at for others, who need no password")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("agent: ")
	if err := run(*serial, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(serial, listen string) error {
	ctx := context.Background()
	var others net.Listener
	if listen != "" {
		var err error
		if others, err = net.Listen("tcp", listen); err != nil {
			return err
		}
	}
	switch {
	case serial == "" && others == nil:
		return errors.New("neither -serial nor -listen: nobody can reach this agent")
	case serial == "":
		return accept(ctx, others)
	case others != nil:
		go func() { log.Print(accept(ctx, others)) }()
	}
	port, err := os.OpenFile(serial, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return agent.Serve(ctx, port, agent.Local)
}

func accept(ctx context.Context, l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := agent.Serve(ctx, c, agent.Local); err != nil {
				log.Print(c.RemoteAddr(), ": ", err)
			}
		}()
	}
}
