// Package roce has the tests that need more than one machine with RoCE: the
// end-to-end suite with client and server in different guests, and what happens
// to a client when processes, guests and links die. The tests boot guests of
// the lab; they run where RDMAKV_CLUSTER=1 says so (make lab-cluster), because
// they take minutes.
package roce
