package doctor

import (
	"errors"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// badSession names what keeps a session from being made, when the port itself
// can be reached.
func (e *exam) badSession(addr string, err error) {
	const name = "session"
	say := func(code, do, text string) { e.bad(Fail, name, addr, code, do, "%s: %v", text, err) }
	switch {
	case errors.Is(err, client.ErrAuth):
		say(CodeSecret, "the same secret_file (or RDMAKV_SECRET) and tenant on both ends: compare sha256sum of the files; kvserver logs whom it refuses, and why", "wrong secret or tenant")
	case errors.Is(err, iwarp.ErrTLS):
		say(CodeTLS, "tls.cert, tls.key and tls.ca on both ends, or on none; certificates signed by a CA that the other end has, names as they are dialed", "TLS does not come about")
	case errors.Is(err, client.ErrVersion):
		say(CodeVersion, "the same release on both ends; kvclient version, kvserver version", "no protocol version in common")
	case errors.Is(err, client.ErrNoRDMA):
		say(CodeNoRDMA, "dial the address of the device's interface; or require_rdma: false", "require_rdma is set, and no device reaches it")
	case errors.Is(err, client.ErrProtocol):
		say(CodeNotOurs, "is that the data port of a kvserver (listen), and not its admin or gossip port?", "something else answers there")
	case isTimeout(err):
		say(CodeSession, "is it stopped or starting (its log, /readyz)? Is that the data port of a kvserver? By verbs: is 4791/udp open both ways, is rdma_ucm loaded there?",
			"the port takes connections, and no session comes of it in time")
	default:
		say(CodeSession, "its log says what it refused; kvclient ping shows the same from here", "no session")
	}
}
