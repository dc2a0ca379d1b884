package server

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store"
)

// What an operator is warned of at the start, because it works and is dangerous.

// warn says all of it. The node serves.
func warn(srv *Server) {
	warnOfUsers(srv.log, srv.devices.list)
	warnOfPublic(srv.log, srv.logins, srv.devices.ports)
	warnOfSecrets(srv.log, srv.logins)
}

// warnOfPublic tells of a node that everybody may use, and not from this machine
// alone.
func warnOfPublic(log *base.Log, logins *auth.Logins, ports []*port) {
	if !logins.Find(wire.Tenant{}).Secret.Empty() {
		return
	}
	for _, p := range ports {
		if p.ln == nil || p.dev.Attr.Caps.Has(rdma.CapMapped) { // of this machine
			continue
		}
		addr := p.ln.Addr().String()
		if at, err := netip.ParseAddrPort(addr); err != nil || !at.Addr().Unmap().IsLoopback() {
			log.Warn(base.LogAlways, "this node is PUBLIC: it has no secret, so everybody who reaches it reads, writes and deletes all keys; "+
				"set secret_file or tenants_file, or listen on 127.0.0.1", "addr", addr)
			return
		}
	}
}

// warnOfSecrets tells whose secret can be guessed by who has seen one connection
// being made: offline, a billion words a second. Said at the start and whenever the
// tenants are read again.
func warnOfSecrets(log *base.Log, logins *auth.Logins) {
	for _, l := range logins.All() {
		if !l.Secret.Empty() && l.Secret.Weak() {
			log.Warn(base.LogAlways, "a secret looks like words or has too few different characters: who has seen one connection request can try out guesses on his own machine; "+
				"make it with: head -c 32 /dev/urandom | base64", "tenant", l.Label)
		}
	}
}

// warnOfMemory tells of a memory limit that the machine does not have: the kernel
// then ends the process when it is used.
func warnOfMemory(log *base.Log, limit uint64) {
	def(&limit, 1<<30) // the store's
	if has := machine.Memory(); has > 0 && limit > uint64(has) {
		log.Warn(base.LogAlways, "memory_limit is more than this machine or its control group has: when it is used up to there, the kernel kills this process; lower memory_limit",
			"memory_limit", limit, "machine", has)
	}
}

// closeDir takes the rights of others off the files of the data directory, which
// earlier versions or another umask may have given them: the log of the store has
// every value in it.
//
// The store is open: so the directory is a store's, and nobody else's while it is
// locked. Only files with names that a node makes are touched. No name leads out of
// the directory: os.Root does not follow links that do. The directory itself may be
// a link.
func closeDir(log *base.Log, cfg *Config) {
	if !cfg.keepsFiles() {
		return
	}
	closed, err := closeFiles(cfg.DataDir, nodeFile)
	more, err2 := closeFiles(filepath.Join(cfg.DataDir, "data"), pebbleFile)
	closed, err = closed+more, errors.Join(err, err2)
	if err != nil {
		log.Warn(base.LogAlways, "files of the data directory stay open to other users of this machine", "dir", cfg.DataDir, "err", err)
	} else if closed > 0 {
		log.Info("files of the data directory were open to other users: they have no rights to them any more", "dir", cfg.DataDir, "files", closed)
	}
}

// warnOfDir warns of a data directory of the node that others may list or enter.
func warnOfDir(log *base.Log, cfg *Config) {
	if !cfg.keepsFiles() {
		return
	}
	if info, err := os.Stat(cfg.DataDir); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn(base.LogAlways, "other users of this machine may look into the data directory: chmod 700", "dir", cfg.DataDir, "mode", info.Mode().Perm().String())
	}
}

// keepsFiles says whether there is a data directory that other users could look into.
func (c *Config) keepsFiles() bool {
	return c.FS == nil && c.DataDir != "" && (c.Mode != store.Cache || c.Cluster != nil)
}

// closeFiles takes the rights of others off the regular files of a directory whose
// names are ours, and returns how many had some. What is not there is no error: the
// store makes and removes files meanwhile.
func closeFiles(dir string, ours func(name string) bool) (closed int, err error) {
	at, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer at.Close()
	list, err := fs.ReadDir(at.FS(), ".")
	for _, e := range list {
		if !e.Type().IsRegular() || !ours(e.Name()) {
			continue
		}
		info, ierr := e.Info()
		if ierr == nil && info.Mode().Perm()&0o077 != 0 {
			closed++
			ierr = at.Chmod(e.Name(), info.Mode().Perm()&^0o077)
		}
		if !errors.Is(ierr, fs.ErrNotExist) {
			err = errors.Join(err, ierr)
		}
	}
	return closed, err
}

// nodeFile says whether a node makes a file of that name in its directory. One that
// is being replaced has a name of its own.
func nodeFile(name string) bool {
	switch strings.TrimSuffix(name, ".new") {
	case "LOCK", "STORE", "LEDGER", "PROBE", auth.RevokedFile, readersFile, format.NodeFile, format.MapFile:
		return true
	}
	return false
}

// pebbleFile says whether Pebble makes a file of that name in data/.
func pebbleFile(name string) bool {
	for _, begin := range []string{"MANIFEST-", "OPTIONS-", "CURRENT", "marker.", "temporary."} {
		if strings.HasPrefix(name, begin) {
			return true
		}
	}
	ext := filepath.Ext(name)
	return name == "LOCK" || ext == ".log" || ext == ".sst" || ext == ".blob"
}

// uverbsNodes are the device nodes through which programs reach the RDMA
// hardware of this machine.
const uverbsNodes = "/dev/infiniband/uverbs*"

// openToAll returns those of the nodes that every user of the machine may open.
// Who can open one sends packets in the name of any connection of the same
// adapter, past the kernel: another user of this machine could take over the
// connections of this node's clients.
func openToAll(pattern string) (names []string) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	for _, name := range found {
		if info, err := os.Stat(name); err == nil && info.Mode().Perm()&0o006 != 0 {
			names = append(names, name)
		}
	}
	return names
}

// warnOfUsers says so, once for a node that uses such a device and asks its
// clients who they are.
func warnOfUsers(log *base.Log, devices []*device) {
	for _, d := range devices {
		if d.Attr.Fabric != "verbs" {
			continue
		}
		if names := openToAll(uverbsNodes); len(names) > 0 {
			log.Warn(base.LogAlways, "every user of this machine may open its RDMA devices, and could forge packets of this node's connections: "+
				"let a group have them (chgrp rdma and chmod 0660, in a udev rule), or let no others onto the machine", "nodes", names)
		}
		return
	}
}
