// Package proto is the bytes of iWARP, and nothing but bytes: what MPA, DDP and RDMAP
// put on the wire, encoded and parsed by pure functions that know no connection. Each
// file begins with the picture of what it is about:
//
//	mpa.go        the request and the reply with which a connection begins
//	fpdu.go       the frame around every segment after them, with its CRC32C
//	ddp.go        the headers of a segment
//	terminate.go  the last message on a connection that broke a rule
//
// Appenders write to the end of a buffer and return it, as append does. Parsers take
// hostile bytes, allocate nothing by a length that stands in them, and return views of
// the bytes that they were given. They check what can be checked without state; what
// depends on the connection (sequence numbers, rights, the state of negotiation) is
// package iwarp's.
package proto
