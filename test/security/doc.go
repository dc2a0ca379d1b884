// Package security attacks a node from outside, over its fabric: with secrets
// and names that are wrong, with handshakes and messages of others, with true
// rkeys that belong to somebody else, with connections that say nothing. Each
// attack must be refused, and an honest client beside it must notice nothing.
//
// The node runs in the process of the test, the attacks come over the fabric
// alone: by default iwarp on loopback, with -fabric verbs -host ADDRESS a RoCE
// or InfiniBand device. What is done to the bytes of the wire is for iwarp only.
// docs/security.md says which threat each test stands for.
package security
