// Command lab boots virtual machines with real RDMA devices made by software,
// and runs programs in them. See package lab for what such a guest is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rdmakv/rdmakv/lab"
)

// A command is one word after "lab".
type command struct {
	name  string
	usage string
	run   func(ctx context.Context, fs *flag.FlagSet, args []string) (code int, err error)
}

// commands are those of this program, with their lines of help.
func commands() []command {
	return []command{
		{"run", "[flags] -- CMD ARGS...   boot a guest, run CMD in it, end with its exit code", runCommand},
		{"test", "[flags] [PACKAGE [FLAGS]] run test binaries in a guest: lab/tests.list (-all: its long list), or one package", testCommand},
		{"cluster", "[flags] -- CMD ARGS... boot several guests, run CMD in the first", clusterCommand},
		{"shell", "[flags]                 a guest with a node running, and a terminal in it", shellCommand},
		{"siw", "[flags]                   build soft-iWARP's module and run its tests in a guest", siwCommand},
		{"fetch", "-to DIR -packages A,B PROGRAM...  programs of Debian packages and their libraries, for a guest to run", fetchCommand},
		{"image", "                        make what guests boot from, or say what is missing", imageCommand},
		{"up", "[flags]                   boot guests that stay, for a fast inner loop", upCommand},
		{"exec", "[flags] -- CMD ARGS...  run CMD in a guest that is up", execCommand},
		{"ctl", "[-name X] WORDS...       cut, heal, loss, link, pause, continue, kill (ctl help)", ctlCommand},
		{"down", "[-name X]               end guests that are up", downCommand},
		{"list", "                        guests that are up", listCommand},
		{"serve", "", serveCommand}, // the process that up leaves in the background
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if len(os.Args) > 1 {
		for _, c := range commands() {
			if c.name == os.Args[1] {
				os.Exit(c.main(ctx))
			}
		}
	}
	fmt.Fprint(os.Stderr, "Usage: lab COMMAND. Commands:\n\n")
	for _, c := range commands() {
		if c.usage != "" {
			fmt.Fprintf(os.Stderr, "  lab %s %s\n", c.name, c.usage)
		}
	}
	fmt.Fprint(os.Stderr, "\nlab COMMAND -h lists its flags.\n")
	os.Exit(2)
}

func (c command) main(ctx context.Context) int {
	fs := flag.NewFlagSet("lab "+c.name, flag.ContinueOnError)
	code, err := c.run(ctx, fs, os.Args[2:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "lab:", err)
		return max(code, 1)
	}
	return code
}

// guestFlags are the flags of every command that boots; memory is in MiB.
func guestFlags(fs *flag.FlagSet, c *lab.Config, memory int) {
	fs.IntVar(&c.CPUs, "smp", 0, "virtual processors (2; 1 each when there are several guests)")
	fs.IntVar(&c.Memory, "mem", memory, "memory in MiB")
	fs.StringVar(&c.Dir, "dir", "", "directory that is /mnt in the guest (a directory below .cache/lab/share)")
	fs.StringVar(&c.RDMA, "rdma", lab.RXE, "RDMA device: rxe, siw or none")
	fs.IntVar(&c.Ports, "ports", 1, "RDMA devices: the first on the Ethernet, each further one on a network of its own")
	fs.IntVar(&c.Huge, "huge", 0, "huge pages of 2 MiB")
	fs.StringVar(&c.Disk, "disk", "", "ext4 image that is /data in the guest")
	fs.StringVar(&c.Log, "log", "", "file for the console")
	c.Progress = lab.PrintTo(os.Stderr)
}
