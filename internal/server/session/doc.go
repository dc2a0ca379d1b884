// Package session moves messages between clients and a handler. A session is one client's
// connection: its queue pair, the credits of its client, the replies that wait to be sent,
// and its end. It checks seals, credits and bounds, and knows nothing of keys, stores or
// clusters: what a message means is a [Handler]'s.
//
// A [Registry] has all connections of a node, one lock over them; a [Group] the sessions of
// one space; a [Rail] what a group has made on one opened device; a [Lane] is a completion
// queue of a rail with the goroutine that polls it, and sessions live on lanes.
//
// The way of a request: Lane.poll finds its receive, the session opens the seal, reads the
// header, takes a credit and counts it in flight, and hands it to its [Conn], on the lane,
// in the receive buffer in which it arrived. Its answer is queued by one of the methods of
// [Request], which gives the receive back to the fabric and a credit to the client; after
// that nothing of the request may be touched. Answers that are given on the lane go out
// after its batch of completions, those of writes after the commit that published them
// ([Group.Published]), all others when their handler flushes: one doorbell for each session.
//
// The end of a session has one order: nothing more is posted, its context ends, its queue
// pair is closed, no completion of it is left, requests that wait are dropped, none is under
// way, its buffers go back, its handler lets go ([Conn].Close), it is forgotten.
//
// Order of locks: Lane.pollMu, then Session.mu, then one of Lane.sharedMu, those of pools of
// buffers and of workers, and of the gate. Registry.mu, Lane.fetchMu and that of the flusher
// are leaves.
package session
