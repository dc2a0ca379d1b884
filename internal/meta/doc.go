// Package meta is what the meta group of a cluster agrees on: the shard map, and the tasks that change it.
//
//	kvclient ──request──▶ seat ──entry: the next state──▶ log of group 0 ──Apply──▶ State ──map──▶ every node
//	                       ▲ │                                                        │
//	                       │ └── plan, step (package seat)                            │
//	                       └────────────────────── reads ─────────────────────────────┘
//
// The seat is the node that leads group 0. It works out the whole next state and puts that into the log, with the version of the state that it was
// worked out from; Apply takes it only if that is still the version (compare and set). So a seat that was deposed changes nothing by what it
// has worked out from an older state, and what a step does is decided once, at the seat, by a pure function.
//
// Whose word counts: which replicas make up a group now, the group's own log says. The state says what is wanted: which replicas a group is to
// have (cluster.Replica), and a group's leader brings the group there, one replica at a time.
//
// What Apply refuses whoever proposes it: a state that breaks a rule of check.go. A broken seat can so stop changes, and cannot have a replica's id given twice,
// or a replica dropped that was not on its way out.
package meta
