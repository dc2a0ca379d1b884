// Package server is one node: the only place where the store and the fabric
// meet. It owns the devices, the listeners, the logins, the admin port, and the spaces
// that its keys are in.
//
// Clients reach it by several fabrics and devices at once (listeners.go,
// device.go). The same memory is registered with each device, and a session is
// handed the region table of its own (package memory). A device that goes is closed and
// opened again (away.go); whether one can connect is tried (selfdial.go).
//
// The way of a request:
//
//	accept.go      a connection request: caps, private data; then package session makes a
//	               session with a QP without rights, whose lane takes in what it sends
//	               (seal, header, credits, Hello) and hands it to the session's handler
//	handle         the table of requests: which right, which keys, where it runs, who answers
//	               it. What the handlers use of the node and of a space is made in env.go.
//
// The keys are in spaces (package space): a space has a store, regions, a PD on each
// device, a beat and sessions of its own. A node has the main space, and one for each
// tenant with one-sided access (spaces.go). It serves, drains and is fenced with its main
// space.
//
// # Rooms below
//
// Parts that need no server have packages of their own: base (causes, bounds, accounts,
// counters, log, fence, the opened device), work (workers, and whose turn it is), auth
// (tenants, logins, who is revoked), memory (regions, rkeys, staging), session (sessions,
// lanes, credits, replies, the registry of connections), handle (what requests mean), space
// (one keyspace, and how it ends). What joins them is here: env.go, tenants.go, device.go.
//
// # Who waits for whom
//
// A lane's goroutine never blocks: what may wait (Pebble, a READ from a
// client, a device that registers memory) goes to the pools (env.go), where tenants take
// turns, or to a goroutine of its own under a bound, or is parked. A session has bounded
// receives, replies and bytes in flight; one that does not take its replies is ended, and
// holds up no other.
//
// # Buffers
//
// A receive buffer belongs to the fabric from PostRecv to its completion, then
// to the request that arrived in it (key and value are views of it, and the
// store reads them there), and returns to the fabric just before the reply
// that gives back its credit is posted. So a conforming client never meets a
// server without a receive.
package server
