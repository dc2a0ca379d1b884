package server

import (
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// What a simulation of a whole cluster looks at in its nodes.

// StoreForTests is the store of the node's own keys; nil before Start.
func (srv *Server) StoreForTests() *store.Store { return srv.main.Store }

// GroupsForTests are the node's replicas, as its status tells of them.
func (srv *Server) GroupsForTests() []wire.GroupStatus { return srv.groups.Status() }
