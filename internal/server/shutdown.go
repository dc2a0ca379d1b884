package server

import (
	"strings"
	"sync/atomic"
)

// A waitsFor says what Shutdown is waiting for, so that an end that takes too long
// can say why. The zero value says nothing.
type waitsFor struct{ what atomic.Pointer[string] }

func (w *waitsFor) set(what string) { w.what.Store(&what) }

func (w *waitsFor) get() string {
	if p := w.what.Load(); p != nil {
		return *p
	}
	return ""
}

// Ending says what Shutdown waits for, in the node and in each space; empty before
// Shutdown and after it. Safe for concurrent use, and it waits for nothing itself.
func (srv *Server) Ending() string {
	var list []string
	if what := srv.ending.get(); what != "" {
		list = append(list, what)
	}
	if srv.root == srv && srv.spaces.mu.TryRLock() { // who hangs may hold it
		for name, sp := range srv.spaces.open {
			if what := sp.ending.get(); what != "" {
				list = append(list, "space "+name+": "+what)
			}
		}
		srv.spaces.mu.RUnlock()
	}
	return strings.Join(list, "; ")
}
