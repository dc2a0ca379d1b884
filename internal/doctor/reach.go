package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// resolve finds the addresses of a peer's name.
func (e *exam) resolve(ctx context.Context, name, addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		e.bad(Fail, name, addr, CodeConfig, "write HOST:PORT", "%v", err)
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	ips, err := e.Resolve(ctx, host)
	if err != nil || len(ips) == 0 {
		e.bad(Fail, name, addr, CodeName, "correct the name, DNS or /etc/hosts (getent hosts "+host+"); in Kubernetes the headless service must exist", "the name has no address: %v", err)
		return false
	}
	list := make([]string, 0, len(ips))
	for _, ip := range ips {
		list = append(list, ip.Unmap().String())
	}
	e.ok("name", host, "%s", strings.Join(list, ", "))
	return true
}

// isSelf reports whether a gossip address is this node's own: lists of seeds are
// often the same on all nodes.
func (e *exam) isSelf(ctx context.Context, addr string) bool {
	if addr == e.set.Gossip || addr == e.set.Advertise {
		return true
	}
	bind, port, err := net.SplitHostPort(e.set.Gossip)
	host, other, err2 := net.SplitHostPort(addr)
	if err != nil || err2 != nil || port != other {
		return false
	}
	ips := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = append(ips, ip)
	} else {
		ctx, cancel := context.WithTimeout(ctx, e.Patience)
		defer cancel()
		ips, _ = e.Resolve(ctx, host) // a name without an address is no node, and resolve reports it
	}
	at, err := netip.ParseAddr(bind)
	wild := bind == "" || err == nil && at.IsUnspecified()
	for _, ip := range ips {
		if wild && ours(ip) || !wild && ip.Unmap() == at.Unmap() {
			return true
		}
	}
	return false
}

// ours reports whether an interface of this machine has the address.
func ours(ip netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == ip.Unmap() {
			return true
		}
	}
	return false
}

// badDial names what keeps a TCP connection from being made.
func (e *exam) badDial(name, subject, what string, err error) {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		e.bad(Fail, name, subject, CodeRefused, "is kvserver started there, at this address and port? (kvserver config; ss -ltn there). A firewall that rejects looks the same",
			"its machine refuses the connection: nobody listens at %s", what)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EINVAL):
		e.bad(Fail, name, subject, CodeUnreachable, "look at routes and addresses: ip route get "+hostOf(subject), "no way there: %v", err)
	case isTimeout(err):
		e.bad(Fail, name, subject, CodeBlocked, "open "+what+" in the firewalls on the way; ping "+hostOf(subject)+" tells whether the machine is up at all",
			"no answer at all: a firewall drops the packets, or the machine is down")
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		e.bad(Fail, name, subject, CodeBlocked, "look at the firewall and the routing rules of this machine (nft list ruleset; ip rule)", "this machine itself forbids the packets: %v", err)
	default:
		e.bad(Fail, name, subject, CodeUnreachable, "", "%v", err)
	}
}

func hostOf(subject string) string {
	addr, _, _ := strings.Cut(subject, "/")
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return subject
	}
	return host
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
