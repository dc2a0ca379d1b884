// Package clients asks the servers of a comparison, each in the ways that suit it
// best.
//
// A peer is asked in three ways: by the loops in this package, which speak its
// protocol on one connection for each caller and do nothing else (no pool, no
// reflection, no allocation per call), under the load generator that rdmakv is
// measured with; by the peer's own tool, redis-benchmark; and by a client in C that
// sends ready-made requests. The comparison takes the way that is best for the
// peer.
//
// The files, one idea each: wire (a buffered connection), redis and memcache (the
// protocols), rdmakv (ours), redisbench (the tool), native (the client in C, and
// the floor), requests (what it sends), pingpong (the floor in Go), disk and memory
// (floors of writing and of copying).
package clients
