// Package cluster shows that a cluster works: three nodes and two clients as
// separate hosts (package hosts), under the faults that clusters meet.
//
// A Rig is the nodes. A Probe calls every node without a pause, and
// records which answered and which did not, with which error. A Load lets many
// clients write and read few keys, and judges their histories (package linear). A test does
// one thing to the rig and says what both must show; docs/failures.md has the
// table.
//
// The tests run in network namespaces where they may make them, else on loopback
// addresses, where some of the faults cannot be made. RDMAKV_CLUSTER=1 runs the
// same on three guests of the lab, over Soft-RoCE.
package cluster
