// Package sim is a fabric that works against its users: a network of machines
// inside one process whose responder does whatever the standards allow, and what
// broken hardware does beside that, as one seed decides.
//
// A Network has Hosts; each Host is an rdma.Fabric with one device, and
// connections between Hosts behave like RC over RoCE. What the words of package
// rdma promise holds. What they do not promise is used against the program, as
// far as Adversity says:
//
//   - a READ is served by 64-byte lines or by 8-byte words, each loaded once and
//     atomically, in any order, spread over time, long after the memory was freed
//     by its owner or the reader gave up waiting; its sink fills piece by piece
//   - SENDs, replies and acknowledgements take their time; READs are overtaken
//     by SENDs that were posted behind them
//   - a completion comes after the local patience is over
//   - keys of deregistered memory come back, with the same address, for other
//     memory; a machine that starts again gives out the keys of its last life
//   - requests to connect are lost, doubled and late; a connection dies at any
//     point, in any of the ways the verbs know, told or not told
//   - a Host can be paused: its program sees and says nothing, its adapter goes
//     on answering READs from the memory as it was. It can be killed, and its
//     memory stays readable for a while. Its device can be pulled out. Two Hosts
//     can be cut off from each other.
//
// The responder works on the goroutines of the network, so it is independent of
// the program whose memory it reads.
//
// # How to read it
//
// network.go and host.go are the machines; device.go, mr.go, qp.go, cq.go and
// recvq.go are their objects. cm.go and listen.go connect; request.go sends,
// respond.go answers, spinread.go READs into prepared sinks, fail.go ends a connection. adversity.go and chance.go
// decide what goes wrong, events.go when it happens.
//
// # Time, and how far a replay goes
//
// The network reads package time. Run in a bubble of testing/synctest, delays of
// seconds cost nothing, and everything made by one Network must stay in one
// bubble. Each decision is a hash of the seed, the name of the connection (the
// host that dialed, and the number of its dial), the direction, and the number of
// the work request on it: never drawn from a stream that several connections
// share. So what happens to the n-th request of a connection does not depend on
// what others do, and a run with the same seed meets the same adversity wherever
// the program does the same. The program's own order is Go's scheduler's: with
// GOMAXPROCS(1) in a bubble it is nearly, but not wholly, the same from run to
// run (select chooses at random, maps too, a long run may be preempted). A
// failing seed should therefore be tried a few times.
//
// Time does not pass while a goroutine can run, so time alone cannot put a load
// between two stores that follow each other. For that there is Network.Step: a
// test calls it where it would like to be interrupted, and loads that were put
// off by a number of steps happen there, on the goroutine that stores.
package sim
