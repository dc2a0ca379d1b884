// Package perf measures a fabric between two processes, as perftest
// (ib_read_lat, ib_write_bw, …) does for libibverbs: latency and bandwidth of
// READ, WRITE and SEND, one test per connection, on any rdma.Device.
//
//	client                                          server
//	Connect (private data: a Hello's header) ────▶  accepts, grants nothing
//	SEND Hello (the test's parameters)  ─────────▶  checks them against its limits,
//	                                                registers a scratch buffer, grants
//	                                    ◀─────────  SEND Ready (address, rkey, receives)
//	warm-up, measurement ══════════════════════════ the test
//	SEND Done                           ─────────▶  takes the rights back
//	                                    ◀─────────  SEND Result (what arrived)
//
// # What the figures mean
//
// The definitions are those of perftest, so that the figures can be compared
// with its own:
//
//   - read_lat is the whole time of a READ, from one post to the next: a full
//     round trip.
//   - write_lat and send_lat are half the time of a ping and its pong: one way.
//     The pong of a WRITE is seen by looking at the memory it lands in.
//   - typical is the median (perftest's t_typical is that too).
//   - bandwidth is payload over time, in MiB/s (2^20 bytes, perftest's MB/s);
//     rate is messages over time. Peak is the best run of consecutive messages.
//   - the time of a bandwidth test ends with the last completion. Where a
//     completion does not prove delivery (iWARP), it ends with the server's
//     word that everything has arrived.
//
// perftest drops the two slowest turns before it reports t_max; nothing is
// dropped here.
//
// # What a peer can do
//
// The server takes parameters from unknown peers: everything is checked,
// bounded by Limits, and every wait ends. It grants READ or WRITE, whichever
// the test needs, on the scratch buffer of this connection and for as long as
// the test lasts; nothing else is ever registered with a remote right. There is
// no authentication: a server is for the time of a diagnosis, on a network
// whose members may use the link.
//
// Also here, because every benchmark of the project compares with it: PingPong,
// the floor of everything that goes through a socket.
package perf
