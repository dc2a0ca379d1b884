package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ports examines the addresses that a node listens at: each must be its own,
// allowed, and not in use by another process.
func (e *exam) ports() {
	for _, addr := range e.set.Listen {
		if e.set.Fabric == "verbs" && e.set.VerbsConnect != "tcp" {
			e.skip("port", addr, "librdmacm's ports are not TCP's: whether one is free shows when the node starts")
			continue
		}
		e.bindable("port", "tcp", addr)
	}
	if e.set.Admin != "" {
		e.bindable("admin port", "tcp", e.set.Admin)
	}
	if e.set.Gossip != "" {
		e.bindable("gossip port", "tcp", e.set.Gossip)
		e.bindable("gossip port", "udp", e.set.Gossip)
	}
}

// bindable tries to bind an address for a moment.
func (e *exam) bindable(name, network, addr string) {
	subject := addr + "/" + network
	var err error
	if network == "tcp" {
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			err = l.Close()
		}
	} else {
		var c net.PacketConn
		if c, err = net.ListenPacket("udp", addr); err == nil {
			err = c.Close()
		}
	}
	var dns *net.DNSError
	switch {
	case err == nil:
		e.ok(name, subject, "free")
	case errors.Is(err, syscall.EADDRINUSE):
		e.inUse(name, network, addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		e.bad(Fail, name, subject, CodePortAddress, "name an address of this machine (ip address), or 0.0.0.0 for all", "the address is not this machine's")
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		e.bad(Fail, name, subject, CodePortAddress, "a port of 1024 or above, or the capability NET_BIND_SERVICE", "this user may not listen there: %v", err)
	case errors.As(err, &dns):
		e.bad(Fail, name, subject, CodeName, "correct the name, DNS or /etc/hosts", "the name has no address: %v", err)
	default:
		e.bad(Fail, name, subject, CodePortAddress, "", "%v", err)
	}
}

// inUse says which process holds a port. If it is a kvserver, it is taken for
// the node that is examined: doctor may be run beside it.
func (e *exam) inUse(name, network, addr string) {
	subject := addr + "/" + network
	pid, program := e.owner(network, addr)
	switch {
	case program == "kvserver":
		e.holder[pid], e.held[addr] = true, true
		e.ok(name, subject, "held by kvserver (process %d), taken for this node, which runs", pid)
	case pid != 0:
		e.bad(Fail, name, subject, CodePortInUse, fmt.Sprintf("stop it, or take another port (%s)", keyOf(name)), "in use by %s (process %d)", program, pid)
	default:
		e.bad(Fail, name, subject, CodePortInUse, fmt.Sprintf("ss -l%snp shows root by whom; or take another port (%s)", network[:1], keyOf(name)), "in use, by whom this user may not see")
	}
}

// keyOf is the configuration key of a port.
func keyOf(name string) string {
	switch name {
	case "admin port":
		return "admin_listen"
	case "gossip port":
		return "gossip.bind"
	}
	return "listen"
}

// owner finds the process that holds a port: the socket in /proc/net, then the
// process with that socket among its descriptors. It returns 0 if it is not
// known.
func (e *exam) owner(network, addr string) (pid int, program string) {
	_, service, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, ""
	}
	want, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return 0, ""
	}
	inodes := make(map[string]bool)
	for _, file := range []string{network, network + "6"} {
		for line := range strings.SplitSeq(e.line("proc/net", file), "\n") {
			f := strings.Fields(line)
			if len(f) < 10 || network == "tcp" && f[3] != "0A" { // LISTEN
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && n == want {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	if len(inodes) == 0 {
		return 0, ""
	}
	for _, name := range e.names("proc") {
		n, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		for _, fd := range e.names("proc", name, "fd") {
			if link, err := os.Readlink(e.path("proc", name, "fd", fd)); err == nil && inodes[link] {
				return n, e.program(name)
			}
		}
	}
	return 0, ""
}

// program is the name of a process: the file of its program, because comm may
// name any of its threads.
func (e *exam) program(pid string) string {
	data, err := os.ReadFile(e.path("proc", pid, "cmdline"))
	if err != nil || len(data) == 0 {
		return orUnknown(e.line("proc", pid, "comm"))
	}
	name, _, _ := bytes.Cut(data, []byte{0})
	return string(name[bytes.LastIndexByte(name, '/')+1:])
}
