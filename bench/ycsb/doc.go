// Command ycsb runs go-ycsb's core workload against rdmakv. See README.md.
//
// It is a module of its own, so that a user who builds rdmakv does not need
// go-ycsb. Of go-ycsb it uses the packages of the core workload and not the
// command, which brings the drivers of thirty databases.
package main
