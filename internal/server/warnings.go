package server

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// What an operator is warned of at the start, because it works and is dangerous.

// warn says all of it. The node serves.
func (srv *Server) warn() {
	srv.warnOfUsers()
	srv.warnOfPublic()
	srv.warnOfSecrets()
}

// warnOfPublic tells of a node that everybody may use, and not from this machine
// alone.
func (srv *Server) warnOfPublic() {
	if !srv.logins.find(wire.Tenant{}).Secret.Empty() {
		return
	}
	for _, p := range srv.ports {
		if p.ln == nil || p.dev.attr.Caps.Has(rdma.CapMapped) { // of this machine
			continue
		}
		addr := p.ln.Addr().String()
		if at, err := netip.ParseAddrPort(addr); err != nil || !at.Addr().Unmap().IsLoopback() {
			srv.log.Warn(limitNone, "this node is PUBLIC: it has no secret, so everybody who reaches it reads, writes and deletes all keys; "+
				"set secret_file or tenants_file, or listen on 127.0.0.1", "addr", addr)
			return
		}
	}
}

// warnOfSecrets tells whose secret can be guessed by who has seen one connection
// being made: offline, a billion words a second.
func (srv *Server) warnOfSecrets() {
	for _, l := range srv.logins.list() {
		if !l.Secret.Empty() && l.Secret.Weak() {
			srv.log.Warn(limitNone, "a secret looks like words or has too few different characters: who has seen one connection request can try out guesses on his own machine; "+
				"make it with: head -c 32 /dev/urandom | base64", "tenant", l.label())
		}
	}
}

// warnOfMemory tells of a memory limit that the machine does not have: the kernel
// then ends the process when it is used.
func (srv *Server) warnOfMemory() {
	limit := srv.cfg.MemoryLimit
	def(&limit, 1<<30) // the store's
	if has := memory.Machine(); has > 0 && limit > uint64(has) {
		srv.log.Warn(limitNone, "memory_limit is more than this machine or its control group has: when it is used up to there, the kernel kills this process; lower memory_limit",
			"memory_limit", limit, "machine", has)
	}
}

// closeDir takes the rights of others off the files of the data directory, which
// earlier versions or another umask may have given them: the log of the store has
// every value in it. It warns of a directory that others may list or enter.
func (srv *Server) closeDir() {
	cfg := &srv.cfg
	if cfg.FS != nil || cfg.DataDir == "" {
		return
	}
	opened, err := 0, error(nil)
	walk := filepath.WalkDir(cfg.DataDir, func(path string, e fs.DirEntry, werr error) error {
		if werr != nil {
			return nil // what it is the store will say
		}
		info, ierr := e.Info()
		switch {
		case ierr != nil || info.Mode().Perm()&0o077 == 0:
		case path == cfg.DataDir:
			srv.log.Warn(limitNone, "other users of this machine may look into the data directory: chmod 700", "dir", path, "mode", info.Mode().Perm().String())
		case info.Mode().IsRegular():
			opened++
			err = errors.Join(err, os.Chmod(path, info.Mode().Perm()&^0o077))
		}
		return nil
	})
	if err = errors.Join(err, walk); err != nil && !errors.Is(err, fs.ErrNotExist) {
		srv.log.Warn(limitNone, "files of the data directory stay open to other users of this machine", "err", err)
	} else if opened > 0 {
		srv.log.Info("files of the data directory were open to other users: they have no rights to them any more", "files", opened)
	}
}
