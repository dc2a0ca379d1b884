package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// A run is made in a network namespace of its own, whose TCP sockets have the congestion control
// that iwarp takes within a machine. So every socket has it: those of Redis, memcached and
// redis-benchmark, which cannot be told, and those of the floors. The machine's own setting stays
// as it is. Where no such namespace can be had, the run goes on without, and the page says so.

// networkArg makes this program measure in the network that it was started in; the argument behind it
// is the name of the network that it was started from.
const networkArg = "in-own-network"

// noNetwork is how that program ends if the network cannot be set up.
const noNetwork = 75

// errTold is the error of a program that has told it already.
var errTold = errors.New("the run failed")

// inOwnNetwork runs this program with these arguments in a network of its own; ran says that it
// could be had.
func inOwnNetwork(ctx context.Context, args []string, log io.Writer) (ran bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	outside, err := servers.Network()
	if err != nil {
		fmt.Fprintf(log, withoutNetwork, err)
		return false, nil
	}
	cmd := exec.CommandContext(ctx, self, append([]string{networkArg, outside}, args...)...)
	// It ends its servers first, as this program would.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = os.Stdout, log
	if err = servers.OwnNetwork(cmd); err == nil {
		err = cmd.Run()
	}
	if err == nil {
		return true, nil
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() != noNetwork {
		return true, errTold
	}
	fmt.Fprintf(log, withoutNetwork, err)
	return false, nil
}

const withoutNetwork = "there is no network namespace for the run (%v): the peers' TCP sockets have the machine's congestion control\n"

// enterNetwork sets up the network that this program was started in, and returns the arguments
// that are left.
func enterNetwork(args []string) ([]string, error) {
	if len(args) < 2 || args[0] != networkArg {
		return nil, fmt.Errorf("%q needs the name of the network that it was started from", networkArg)
	}
	return args[2:], servers.SetUpNetwork(args[1], clients.Congestion)
}
