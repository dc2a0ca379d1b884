//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdmakv/rdmakv/rdma"
	"golang.org/x/sys/unix"
)

// This file says where sockets lie. A listener at HOST:PORT has the socket
//
//	DIR/PORT.NETNS.HOST.sock
//
// with its network namespace (two containers may both listen at port 7400 of their
// loopback) and "any" for a wildcard host. A dialer tries all of its port, those of
// its own namespace first; the acceptor says whether the address that was dialled is
// one of its own.

// A place is a socket that may be the one that is looked for.
type place struct {
	dir, path string
	netns     uint64
}

// maxPlaces bounds how many sockets of one port a dialer tries.
const maxPlaces = 64

// Dirs are the directories in which a dialer looks for sockets if none is
// configured. A listener takes the first of them that can be made.
func Dirs() []string {
	var dirs []string
	if d := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		dirs = append(dirs, filepath.Join(d, "rdmakv"))
	}
	uid := strconv.Itoa(os.Getuid())
	dirs = append(dirs, filepath.Join("/run/user", uid, "rdmakv"))
	if os.Getuid() == 0 {
		dirs = append(dirs, "/run/rdmakv")
	}
	dirs = append(dirs, filepath.Join(os.TempDir(), "rdmakv-"+uid))
	return slices.Compact(dirs)
}

func (f *Fabric) dirs() []string {
	if f.opts.Dir != "" {
		return []string{f.opts.Dir}
	}
	return Dirs()
}

// place is the directory that is in use: the first one that is there, as makeDir
// takes them; where none is yet, the one that makeDir would make first.
func (f *Fabric) place() string {
	dirs := f.dirs()
	for _, d := range dirs {
		if _, err := f.checkDir(d); err == nil {
			return d
		}
		if parent, err := os.Stat(filepath.Dir(d)); err == nil && parent.IsDir() {
			return d
		}
	}
	return dirs[0]
}

// makeDir makes the directory to listen in, or finds it.
func (f *Fabric) makeDir() (string, error) {
	var errs []error
	for _, d := range f.dirs() {
		err := os.Mkdir(d, 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			errs = append(errs, err)
			continue
		}
		if _, err := f.checkDir(d); err != nil {
			errs = append(errs, err)
			continue
		}
		return d, nil
	}
	return "", errors.Join(errs...)
}

// checkDir refuses a directory in which others could put sockets: it must belong to
// our user or to root (or, where a directory was named and its owner is trusted, to
// that owner) and be writable for its owner alone. It returns the owner.
func (f *Fabric) checkDir(dir string) (owner uint32, err error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return 0, fmt.Errorf("%s is no directory", dir)
	case info.Mode().Perm()&0o022 != 0:
		return 0, fmt.Errorf("%s is writable for others (mode %v): chmod go-w", dir, info.Mode().Perm())
	case (f.opts.Trust == SameUser || f.opts.Dir == "") && st.Uid != uint32(os.Getuid()) && st.Uid != 0:
		return 0, fmt.Errorf("%s belongs to user %d, not to us (%d)", dir, st.Uid, os.Getuid())
	}
	return st.Uid, nil
}

// resolve reads a host:port address; a name is looked up.
func resolve(ctx context.Context, addr string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: %w", rdma.ErrInvalid, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: port %q", rdma.ErrInvalid, port)
	}
	if host == "" {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(n)), nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: %w", rdma.ErrInvalid, err)
	}
	if len(ips) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%w: %s has no address", rdma.ErrInvalid, host)
	}
	return netip.AddrPortFrom(ips[0].Unmap(), uint16(n)), nil
}

// find lists the sockets of a port. If there are none it fails, and says where it
// has looked.
func (f *Fabric) find(port uint16) ([]place, error) {
	var list []place
	var errs []error
	own := netns()
	prefix := strconv.Itoa(int(port)) + "."
	for _, dir := range f.dirs() {
		if _, err := f.checkDir(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		names, err := os.ReadDir(dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, e := range names {
			rest, ok := strings.CutPrefix(e.Name(), prefix)
			if !ok || !strings.HasSuffix(rest, ".sock") || len(list) == maxPlaces {
				continue
			}
			space, _, _ := strings.Cut(rest, ".")
			ns, err := strconv.ParseUint(space, 10, 64)
			if err != nil {
				continue
			}
			list = append(list, place{dir: dir, path: filepath.Join(dir, e.Name()), netns: ns})
		}
	}
	slices.SortStableFunc(list, func(a, b place) int {
		return distance(a, own) - distance(b, own)
	})
	if len(list) == 0 {
		return nil, fmt.Errorf("no process of this host listens at port %d, as far as can be seen: no socket %s* in %s%s",
			port, prefix, strings.Join(f.dirs(), ", "), suffix(errs))
	}
	return list, nil
}

func distance(p place, own uint64) int {
	if p.netns == own {
		return 0
	}
	return 1
}

func suffix(errs []error) string {
	if len(errs) == 0 {
		return ""
	}
	var s []string
	for _, e := range errs {
		s = append(s, e.Error())
	}
	return " (" + strings.Join(s, "; ") + ")"
}

// socketName is the file of a listener.
func socketName(at netip.AddrPort) string {
	host := "any"
	if !at.Addr().IsUnspecified() {
		host = strings.ReplaceAll(at.Addr().WithZone("").String(), ":", "_")
	}
	return fmt.Sprintf("%d.%d.%s.sock", at.Port(), netns(), host)
}

// netns is the inode of our network namespace, or 0 if the system does not say.
func netns() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/net", &st) != nil {
		return 0
	}
	return st.Ino
}

// owns reports whether a listener at self is the one that a dialer of namespace ns
// means by want.
func owns(self, want netip.AddrPort, ns uint64) bool {
	if self.Port() != want.Port() {
		return false
	}
	ip := want.Addr()
	if ip.IsUnspecified() || ip.IsLoopback() {
		// Every namespace has such an address.
		if ns == 0 || ns != netns() {
			return false
		}
		return self.Addr().IsUnspecified() || ip.IsUnspecified() || self.Addr() == ip
	}
	if !self.Addr().IsUnspecified() {
		return self.Addr() == ip
	}
	return ownAddr(ip)
}

// ownAddr reports whether an address is one of this host, in our network
// namespace.
func ownAddr(ip netip.Addr) bool {
	if ip.IsUnspecified() || ip.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		if !ok {
			return false
		}
		have, ok := netip.AddrFromSlice(n.IP)
		return ok && have.Unmap() == ip.WithZone("")
	})
}
