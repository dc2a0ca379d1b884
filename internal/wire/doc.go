// Package wire is the messages that travel inside SENDs between a client and
// a server, and the private data of the connection that carries them: encode
// and decode, nothing else. It knows no fabric, no clock and no store.
//
// One SEND carries one message, a 48-byte header and a body, or several as a pack (pack.go):
//
//	 0        1        2            4            6            8
//	┌────────┬────────┬────────────┬────────────┬────────────┐
//	│version │ type   │ status     │ flags      │ credits    │
//	├────────┴────────┴────────────┴────────────┴────────────┤ 8
//	│ request id                                             │
//	├────────────────────────────┬───────────────────────────┤ 16
//	│ body length                │ reserved, zero            │
//	├────────────────────────────┴───────────────────────────┤ 24
//	│ sequence                                               │
//	├────────────────────────────────────────────────────────┤ 32
//	│ tag, 16 bytes                                          │
//	├────────────────────────────────────────────────────────┤ 48
//	│ body …                                                 │
//	└────────────────────────────────────────────────────────┘
//
// All integers are little-endian. A reply has the type of its request with
// ReplyBit set and the same request id. Its status says how the request went;
// with any status but StatusOK the body is a text for people.
//
// Credits, in both directions: a header's credits field is how many more
// messages the sender of that header is ready to receive. A client starts with
// one credit, spends it on Hello, and from then on spends one for every
// request except Ping, which has a receive of its own at the server: one Ping
// may be under way at any time. A server spends the client's credits only on
// messages that the client did not ask for (Goodbye); for the reply to a request the
// client always keeps a receive posted.
//
// Sequence and tag are the message's seal (seal.go): written by the sender when
// it posts, checked by the receiver before anything else is looked at.
//
// # How to read it
//
// header.go is the header and the list of message types; pack.go several messages in one; private.go, session.go and
// seal.go are the handshake, the life of a session and its MACs; status.go is how a
// request can end. read.go, fetch.go and scan.go are the requests that read,
// write.go, batch.go and terms.go those that write, watch.go and report.go the
// others of a client, view.go the region table. cluster.go and admin.go are for
// clusters and operators. fields.go is what the codecs share.
//
// # Rules of the codecs
//
//   - Parse functions take bytes from a peer: every length is compared with
//     what is there before it is used, and nothing is allocated. What they
//     return are views of the argument, good as long as it is.
//   - The encoding is canonical: reserved bytes are zero, nothing follows the
//     last field, so that Append(Parse(b)) == b for every b that parses. The
//     fuzz targets hold the package to that.
//   - Append functions trust their caller; a field too long for its length
//     field is a broken invariant and panics.
//   - What a value means (an empty key, a key too long for the store) is the
//     server's affair: it parses here and is answered there.
package wire
