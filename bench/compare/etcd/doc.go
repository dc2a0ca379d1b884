// Etcd is the worker of bench/compare that asks etcd: it reads one job as JSON on standard
// input, loads an etcd by its own client library under internal/load, as "compare worker"
// does it for the other systems, and prints the sample.
//
// It is a module of its own, so that rdmakv's needs no gRPC. "make bench-compare" builds it
// when a row asks etcd.
//
// The files, one idea each: main (the worker), members (which members are asked, by how many
// clients), store (etcd as a caller of the load generator has it).
package main
