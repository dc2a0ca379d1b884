// Package handle answers the requests of clients: what a message means, which right it
// needs, which keys it names and where it runs. It is the [session.Handler] of the sessions
// of one space, and knows of the space and its node what [Env] holds.
//
// The way of a request, and the file that tells of each step:
//
//	handlers.go    the handler's side of a space, of a session and of a request: the row of
//	               the request is found, its right is judged, and it goes where the row says
//	requests.go    the table of requests: which right and which keys, and the handler
//	rights.go      whether a login may name a key, whether its shard is this node's
//	leads.go       whether this node leads the replicas of a key
//	write.go       put, delete and update: handed to the store, answered from its callback
//	batch.go       several writes that take effect together
//	large.go       put of a large value: the server READs it from the client (package session)
//	grow.go        writes that wait for memory which is being registered
//	slow.go        puts that the store slows down because its log is nearly full
//	read.go        get, exists, scan, view: the SEND path of reads
//	hold.go        places kept unchanged for one client
//	watch.go       long polls for events
//	report.go      what a client has seen of memory, and the keepalive
//	documents.go   answers longer than a message: statistics, the cluster, the operator's
//	status.go      what an error means to a client
//
// No handler parses a message or judges its keys: the functions in requests.go that make a
// row do both before they call the handler. So a handler cannot be reached with a key that
// the login may not name, or that is another node's.
//
// A handler runs on the lane, which must not wait, or on the workers that its row names. What
// would make the lane wait goes to the workers, to a goroutine of its own under a bound, or
// is parked.
package handle
