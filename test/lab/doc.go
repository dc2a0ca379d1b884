// Package lab has the tests of the lab itself: that a guest boots with an
// RDMA device that works, that exit codes come back, that each fault is the one
// it is called, and that nothing is left behind. They boot guests, which takes
// about ten seconds each; "make lab" runs those on which the rest relies, and "make
// lab-all" all but those that boot several: these run with RDMAKV_CLUSTER=1 ("make
// lab-cluster").
package lab
