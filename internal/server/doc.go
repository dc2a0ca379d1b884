// Package server is one node: the only place where the store and the fabric
// meet. It owns the registered memory, the listeners, the sessions, the beat
// and the admin port.
//
// Clients reach it by several fabrics and devices at once (listeners.go,
// device.go). The same memory is registered with each device, and a session is
// handed the region table of its own (regions.go). A device that goes is closed and
// opened again (away.go); whether one can connect is tried (selfdial.go).
//
// The way of a request, and the file that tells of each step:
//
//	accept.go      a connection request: caps, private data, a QP without rights
//	lane.go        a completion queue and the one goroutine that polls it
//	receive.go     a received SEND: credits, header, authentication, dispatch
//	write.go       put and delete: handed to the store, answered from its callback
//	large.go       put of a large value: the server READs it from the client
//	read.go        get, exists, scan, stats, view: the SEND path of reads
//	hold.go        places kept unchanged for one caller
//	session.go     credits, the queue of replies, the end of a session
//
// Beside it: the beat (beat.go), which keeps clients' leases alive and depends
// on no handler; the janitor (beat.go), which ends sessions that are silent
// or do not take their replies; what the store retired, freed by a goroutine
// that may wait for it; puts that wait for memory (grow.go); the gate (gate.go), a debug hook that stops
// every handler while fabric and beat go on; metrics.go and admin.go.
//
// A tenant with one-sided access has a space of its own (space.go, spaces.go): a
// Server inside this one, with another PD, other regions and another store. In a
// handler session.srv is the space, and root the node.
//
// # Who waits for whom
//
// A lane's goroutine never blocks: what may wait (Pebble, a READ from a
// client, a device that registers memory) goes to the pools in pool.go, where tenants take turns,
// or to a goroutine of its own under a bound, or is parked (grow.go). A session has bounded receives, replies and bytes in flight;
// one that does not take its replies is ended, and holds nobody else.
//
// # Buffers
//
// A receive buffer belongs to the fabric from PostRecv to its completion, then
// to the request that arrived in it (key and value are views of it, and the
// store reads them there), and returns to the fabric just before the reply
// that gives back its credit is posted. So a conforming client never meets a
// server without a receive.
package server
