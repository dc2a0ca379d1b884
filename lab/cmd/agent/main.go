//go:build linux

// Command agent runs inside a guest of the lab and starts programs there for
// the host (on a virtio serial port) and for other guests (on TCP).
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"

	"github.com/rdmakv/rdmakv/lab/agent"
)

func main() {
	serial := flag.String("serial", "", "the virtio serial port to the host; the agent ends with it")
	listen := flag.String("listen", "", "host:port to listen at for other guests")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("agent: ")
	if err := run(*serial, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(serial, listen string) error {
	ctx := context.Background()
	port, err := os.OpenFile(serial, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if listen != "" {
		l, err := net.Listen("tcp", listen)
		if err != nil {
			return err
		}
		go accept(ctx, l)
	}
	return agent.Serve(ctx, port, agent.Local)
}

func accept(ctx context.Context, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			log.Print(err)
			return
		}
		go func() {
			if err := agent.Serve(ctx, c, agent.Local); err != nil {
				log.Print(c.RemoteAddr(), ": ", err)
			}
		}()
	}
}
