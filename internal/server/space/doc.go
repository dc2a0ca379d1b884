// Package space is one keyspace of a node: a store over registered memory, and all that
// serves it to sessions.
//
// A node has its main space, and one for each tenant with one-sided access, because
// rights over keys mean nothing to a NIC. Whoever may READ a slab reads all of it, and
// within a protection domain an rkey that one tenant learnt opens the memory to every
// other. So such a tenant has its own slabs and index *and* its own protection domain;
// the NIC compares the domain of queue pair and region, and another tenant's true rkey is
// refused like an invented one.
//
// Everything that serves a request (store with its directory, lock, identity and
// recovery, regions, beat, incarnation and lease, completion queues, lanes, buffers,
// staging, pools) is the space's own. The node keeps what stands before that: ports,
// limits of connections, admin port, the opened devices. A session belongs to its
// space from the moment its login is known, before a queue pair is made for it.
//
// # When a space fails
//
// A space whose durability is gone fences itself: no beat, no session, no lease;
// its tenants are refused, the node and the other spaces go on. Their files are
// apart, and a node that ended with it would take from all tenants what one of
// them has lost. It takes a restart of the node to try again: the failed store
// keeps its lock. A node whose main space fails ends, and all its spaces with it.
package space
