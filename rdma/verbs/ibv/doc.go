// Package ibv is libibverbs and librdmacm in Go: the objects and calls of
// rdma-core under their own names, and nothing on top of them. Package verbs
// makes an rdma.Fabric of it; a program that wants to move a queue pair by
// hand, attribute by attribute, uses it directly.
//
// All calls into rdma-core stand in one C file, shim.c, which is compiled only
// where its headers are, and which opens the two libraries at run time. So one
// go build works everywhere, and one binary runs with and without rdma-core:
// Load says which, and what to install.
//
// Safety: memory is named by address, as in C. Whoever posts a work request
// keeps the memory it names mapped and alive until the completion was polled.
package ibv
