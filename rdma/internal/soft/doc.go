// Package soft is what the fabrics in software have in common: rdma/iwarp, whose
// wire is a TCP connection, and rdma/shm, whose wire is memory that two
// processes share. A program sees the same device on both, so it is written here
// once: keys and numbers of queue pairs, regions, scatter/gather lists and
// queues. A fabric adds how the bytes travel.
//
// The package knows no wire, no clock and no goroutine. Read device.go first,
// then mr.go and keys.go (regions and how peers name them), sgl.go, sendq.go,
// recvq.go and cq.go (the queues), and at last qp.go and end.go (the life of a
// queue pair).
package soft
