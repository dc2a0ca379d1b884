package server

import (
	"os"
	"path/filepath"
)

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
func (srv *Server) warnOfUsers() {
	for _, d := range srv.devices {
		if d.attr.Fabric != "verbs" {
			continue
		}
		if names := openToAll(uverbsNodes); len(names) > 0 {
			srv.log.Warn(limitNone, "every user of this machine may open its RDMA devices, and could forge packets of this node's connections: "+
				"let a group have them (chgrp rdma and chmod 0660, in a udev rule), or let no others onto the machine", "nodes", names)
		}
		return
	}
}
