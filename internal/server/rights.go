package server

import (
	"bytes"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// What a login may do. Two things are decided before any handler runs: by the
// type of the request (permit), and by the keys that it names (mayKey), which
// each handler asks once it has parsed them. What a NIC does cannot be decided
// by key: a login with a prefix gets no rkeys at all (view, hello).

// permit refuses what the login has not the right to do at all. true: go on.
func (r *request) permit() bool {
	l := r.s.login
	switch r.hdr.Type {
	case wire.TypePut, wire.TypePutLarge, wire.TypeDelete, wire.TypeUpdate, wire.TypeBatch, wire.TypeBatchLarge:
		if !l.write {
			return r.deny("tenant %s may only read", l.Name)
		}
	case wire.TypeAdmin, wire.TypeMapChange:
		if !l.admin {
			return r.deny("%v is for administrators", r.hdr.Type)
		}
	case wire.TypeStats:
		// The numbers of a space that others use tell about their keys.
		if len(l.prefix) > 0 {
			return r.deny("tenant %s sees keys that begin with %q, and no statistics", l.Name, l.prefix)
		}
	}
	return true
}

// mayKey refuses a key, or a prefix of keys, outside the login's own prefix.
// true: go on.
func (r *request) mayKey(key []byte) bool {
	if p := r.s.login.prefix; len(p) > 0 && !bytes.HasPrefix(key, p) {
		return r.deny("tenant %s may name keys that begin with %q", r.s.login.Name, p)
	}
	return true
}

// deny answers with StatusDenied. It returns false.
func (r *request) deny(format string, args ...any) bool {
	r.s.srv.root.met.denied.Add(1)
	r.fail(wire.StatusDenied, fmt.Sprintf(format, args...))
	return false
}
