// Package jobs is what a worker of the comparison does when it loads a server: the job
// itself, which travels as JSON, and how it is carried out and timed by internal/load. It
// knows no store: the program that works says how its server is reached, so that a client
// with many dependencies can be a worker in a module of its own (bench/compare/etcd).
//
// The files, one idea each: job (what is asked for), load (a measured load, and filling),
// cpu (the processor time of the servers meanwhile), touch (gets beforehand), work (a
// program that is nothing but such a worker).
package jobs
