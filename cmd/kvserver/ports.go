package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/rdmakv/rdmakv/internal/config"
)

// portsTaken is the error of a port that is in use. It names the keys of all ports
// in use: a user who has started a node twice would else read of the first port
// alone, and look for a program that has it.
func portsTaken(err error, c config.Config) error {
	// memberlist makes text of errors.
	if !errors.Is(err, syscall.EADDRINUSE) && !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		return err
	}
	// Every port that is configured is tried: the error is of the first that
	// failed.
	var at []string
	for _, addr := range c.Listen {
		if taken("tcp", addr) {
			at = append(at, "listen "+addr)
		}
	}
	if c.AdminListen != "" && taken("tcp", c.AdminListen) {
		at = append(at, "admin_listen "+c.AdminListen)
	}
	if c.Gossip.Bind != "" && (taken("tcp", c.Gossip.Bind) || taken("udp", c.Gossip.Bind)) {
		at = append(at, "gossip.bind "+c.Gossip.Bind)
	}
	switch len(at) {
	case 0: // it is free by now, or cannot be tried
		return fmt.Errorf("%w; another program has that port", err)
	case 1:
		return &portError{at[0] + ": address already in use: another program has that port", err}
	}
	return &portError{strings.Join(at, ", ") + ": addresses already in use: does another kvserver run here?", err}
}

// A portError words an error of a port that is in use.
type portError struct {
	text string
	err  error
}

func (e *portError) Error() string   { return e.text }
func (e *portError) Unwrap() []error { return []error{e.err, syscall.EADDRINUSE} }

// taken reports whether a port is in use, by listening there for a moment. Any
// other error of listening is not about that, and the answer is no.
func taken(network, addr string) bool {
	var err error
	if network == "udp" {
		var conn net.PacketConn
		if conn, err = net.ListenPacket(network, addr); err == nil {
			_ = conn.Close()
		}
	} else {
		var ln net.Listener
		if ln, err = net.Listen(network, addr); err == nil {
			_ = ln.Close()
		}
	}
	return errors.Is(err, syscall.EADDRINUSE)
}
