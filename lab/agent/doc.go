// Package agent starts programs in a guest of the lab from outside it: from the
// host, over a virtio serial port, and from another guest, over TCP.
//
// One connection carries any number of programs. It is a stream of frames, in
// both directions, all integers big endian:
//
//	+----------------+--------+----------------+------------------------+
//	| length         | kind   | program        | body                   |
//	| uint32, <=MaxBody| uint8 | uint32         | length bytes           |
//	+----------------+--------+----------------+------------------------+
//
// The side that starts programs (Client) numbers them. It sends Start with the
// command line as JSON, Signal, and Data for standard input; the side that runs
// them (Serve) answers Started or Failed, sends Data for standard output and
// error, and ends with Exit, which is the last frame of a program.
//
// Every stream has a window: at most Window bytes are under way before the
// receiver has said with a Credit frame that it took some. So a program whose
// output is not read waits, as on a pipe, and stops no other program, and memory
// on both sides is bounded whatever the other side does.
//
// client.go starts programs and serve.go runs them; frame.go and conn.go are the
// stream of frames, stream.go its windows, process.go a running program, local.go
// one on this machine, terminal.go a pseudo-terminal.
//
// The agent does what it is told and asks for no password. It is for guests that
// live for one test and whose network ends on the loopback interface of the
// host. On a real machine it gives every process that reaches its port the
// rights of its user, so run it only on a network of your own, and only while a
// test runs.
package agent
