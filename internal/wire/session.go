package wire

import (
	"crypto/hmac"
	"time"
)

// MaxName bounds the names of clients and servers in Hello and Welcome, bytes.
const MaxName = 64

// A Hello is the first message of a session and proves that the client knows
// the secret. Header.Credits grants the server's first unasked messages.
//
//	┌MAC┬client id┬reply size┬name length┬ 0 ┬name┐
//	└32 ┴16       ┴4         ┴2          ┴2  ┴…   ┘
type Hello struct {
	// MAC covers both private data and the rest of this body; SignHello
	// computes it, VerifyHello checks it.
	MAC      [FullMACSize]byte
	ClientID [16]byte // random per client program, outlives connections; see RequestID
	// ReplySize is the size in bytes of the receives that the client posts:
	// the largest message that it takes.
	ReplySize uint32
	Name      []byte // for the server's log; at most MaxName bytes
}

// AppendHello appends a Hello with the MAC that m holds.
func AppendHello(dst []byte, id uint64, m Hello) []byte {
	start := len(dst)
	dst = begin(dst, TypeHello, id)
	dst = append(dst, m.MAC[:]...)
	dst = append(dst, m.ClientID[:]...)
	dst = le.AppendUint32(dst, m.ReplySize)
	dst = le.AppendUint16(dst, len16(m.Name))
	dst = append(dst, 0, 0)
	return finish(append(dst, m.Name...), start)
}

// ParseHello reads the body of a Hello.
func ParseHello(body []byte) (Hello, error) {
	f := fields{b: body}
	var m Hello
	copy(m.MAC[:], f.take(FullMACSize))
	copy(m.ClientID[:], f.take(16))
	m.ReplySize = f.u32()
	n := f.u16()
	f.zero(2)
	m.Name = f.take(uint64(n))
	if n > MaxName {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return Hello{}, err
	}
	return m, nil
}

// SignHello writes the MAC into msg, an encoded Hello: over connect and accept,
// the private data of both ends, and what stands behind the MAC in the body.
func SignHello(msg, secret, connect, accept []byte) {
	body := Body(msg)
	sum := mac(secret, "rkv hello", connect, accept, body[FullMACSize:])
	copy(body, sum[:])
}

// VerifyHello checks the MAC in the body of a Hello in constant time.
func VerifyHello(body, secret, connect, accept []byte) bool {
	if len(body) < FullMACSize {
		return false
	}
	sum := mac(secret, "rkv hello", connect, accept, body[FullMACSize:])
	return hmac.Equal(sum[:], body[:FullMACSize])
}

// A Welcome answers Hello: the session stands and the QP now lets READs
// through. It is also the client's first lease, from the moment Hello was
// posted. Header.Credits grants the first requests.
//
//	┌session┬incarnation┬lease┬beat┬keepalive┬idle┬view version┬reclaim version┬max value┐
//	└8      ┴8          ┴8    ┴8   ┴8        ┴8   ┴8           ┴8              ┴8        ┘ 72
//	┌max key┬request size┬reply size┬shards┬regions┬id length┬flags┬server id┐
//	└4      ┴4           ┴4         ┴4     ┴4      ┴2        ┴2    ┴…        ┘
type Welcome struct {
	Session     uint64        // names the session in the server's log
	Incarnation uint64        // of the store: the one in Accept
	Lease       time.Duration // microseconds on the wire
	Beat        time.Duration // how often the beat is rewritten
	// Keepalive is how long a client may be silent before it sends a Ping;
	// after Idle the server ends the session.
	Keepalive, Idle             time.Duration
	ViewVersion, ReclaimVersion uint64
	MaxValue                    uint64 // bytes
	MaxKey                      uint32 // bytes
	// RequestSize is the largest message that the server takes, ReplySize the
	// largest that it will send in this session; bytes with header.
	RequestSize, ReplySize uint32
	Shards                 uint32 // fixed at the store's birth
	Regions                uint32 // in the view of ViewVersion
	Flags                  WelcomeFlags
	ServerID               []byte // stable name of the store; at most MaxName bytes
}

// WelcomeFlags say what is out of the ordinary in a session. A client that meets
// a flag that it does not know must end the session, because it cannot know what
// the flag changes.
type WelcomeFlags uint16

const (
	// WelcomeLeaseOff: a debug mode. The server promises to use no memory again
	// that a client may read, for as long as its process lives, so READs may be
	// believed without a lease and without its list of reclaimed pages: also
	// those from a server that is stopped, cut off or deposed. Welcome.Lease is
	// the time for everything else that is counted in leases (held places).
	WelcomeLeaseOff WelcomeFlags = 1 << 0
	// WelcomeClustered: the server is a node of a cluster and owns a part of the
	// keys. Its DocumentMap says which nodes own the others.
	WelcomeClustered WelcomeFlags = 1 << 1

	// WelcomeTouches: memory is scarce, and the server asks to be told of keys
	// that are read one-sidedly; see PingReply.Touches, which changes it.
	WelcomeTouches WelcomeFlags = 1 << 2

	welcomeFlagsKnown = WelcomeLeaseOff | WelcomeClustered | WelcomeTouches
)

// AppendWelcome appends the reply to Hello.
func AppendWelcome(dst []byte, id uint64, m Welcome) []byte {
	start := len(dst)
	dst = begin(dst, TypeHello.Reply(), id)
	for _, v := range [...]uint64{
		m.Session, m.Incarnation, micros(m.Lease), micros(m.Beat), micros(m.Keepalive), micros(m.Idle),
		m.ViewVersion, m.ReclaimVersion, m.MaxValue,
	} {
		dst = le.AppendUint64(dst, v)
	}
	for _, v := range [...]uint32{m.MaxKey, m.RequestSize, m.ReplySize, m.Shards, m.Regions} {
		dst = le.AppendUint32(dst, v)
	}
	dst = le.AppendUint16(dst, len16(m.ServerID))
	dst = le.AppendUint16(dst, uint16(m.Flags))
	return finish(append(dst, m.ServerID...), start)
}

// ParseWelcome reads the body of the reply to Hello.
func ParseWelcome(body []byte) (Welcome, error) {
	f := fields{b: body}
	m := Welcome{
		Session: f.u64(), Incarnation: f.u64(),
		Lease: f.micros(), Beat: f.micros(), Keepalive: f.micros(), Idle: f.micros(),
		ViewVersion: f.u64(), ReclaimVersion: f.u64(),
		MaxValue: f.u64(), MaxKey: f.u32(), RequestSize: f.u32(), ReplySize: f.u32(),
		Shards: f.u32(), Regions: f.u32(),
	}
	n := f.u16()
	m.Flags = WelcomeFlags(f.u16())
	if m.Flags&^(welcomeFlagsKnown|WelcomeSendOnly|WelcomeCache|WelcomeWords) != 0 {
		f.fail(ErrReserved)
	}
	m.ServerID = f.take(uint64(n))
	if n > MaxName || m.Shards == 0 || m.Shards > 1<<12 {
		f.fail(ErrRange)
	}
	if err := f.done(); err != nil {
		return Welcome{}, err
	}
	return m, nil
}

// maxMicros bounds durations on the wire to a year: a larger one is nonsense
// and could overflow a sum.
const maxMicros = 366 * 24 * 3600 * 1e6

func micros(d time.Duration) uint64 { return uint64(max(0, d.Microseconds())) }

func (f *fields) micros() time.Duration {
	v := f.u64()
	if v > maxMicros {
		f.fail(ErrRange)
		return 0
	}
	return time.Duration(v) * time.Microsecond
}

// A Ping shows that the client lives and asks the same of the server. It needs
// no credit; one may be under way at a time. The server's poller answers it
// without any lock of the store.
//
//	┌echo┬return┬touches┬ 0 ┬view┬touches …┐
//	└8   ┴2     ┴2      ┴4  ┴8   ┴…        ┘
type Ping struct {
	Echo uint64 // comes back
	// Return is how many unused credits the client gives back: a client that
	// has been idle for a while keeps one, so that thousands of idle sessions
	// do not hold receives. The client must not use them after posting this.
	Return uint16
	// View is the oldest version of the region table that READs of this session
	// may still use: no READ with an rkey from before it is under way, or will
	// be posted. If it is 0 the client has no table yet. The server keeps what
	// it has deregistered from a version on until every session is there.
	View uint64
	// Touches are reads that the server has not seen; at most MaxTouches.
	Touches Touches
}

// AppendPing appends a Ping.
func AppendPing(dst []byte, id uint64, m Ping) []byte {
	start := len(dst)
	dst = begin(dst, TypePing, id)
	dst = le.AppendUint64(dst, m.Echo)
	dst = le.AppendUint16(dst, m.Return)
	dst = le.AppendUint16(dst, m.Touches.count16())
	dst = append(dst, 0, 0, 0, 0)
	dst = le.AppendUint64(dst, m.View)
	return finish(append(dst, m.Touches...), start)
}

// ParsePing reads the body of a Ping.
func ParsePing(body []byte) (Ping, error) {
	f := fields{b: body}
	m := Ping{Echo: f.u64(), Return: f.u16()}
	n := f.u16()
	f.zero(4)
	m.View = f.u64()
	m.Touches = f.touches(n)
	if err := f.done(); err != nil {
		return Ping{}, err
	}
	return m, nil
}

// A PingReply answers Ping.
//
//	┌echo┬server time┬view version┬touches┬ 0 ┐
//	└8   ┴8          ┴8           ┴1      ┴7  ┘
type PingReply struct {
	Echo        uint64
	TimeMicros  uint64 // the server's time, microseconds since 1970
	ViewVersion uint64
	// Touches: the server asks to be told of reads that it does not see. It does
	// not ask while everything it has fits into its memory: then a client that
	// only reads costs it nothing but a Ping now and then.
	Touches bool
}

// AppendPingReply appends the reply to a Ping.
func AppendPingReply(dst []byte, id uint64, m PingReply) []byte {
	start := len(dst)
	dst = begin(dst, TypePing.Reply(), id)
	dst = le.AppendUint64(dst, m.Echo)
	dst = le.AppendUint64(dst, m.TimeMicros)
	dst = le.AppendUint64(dst, m.ViewVersion)
	return finish(append(dst, bit(m.Touches), 0, 0, 0, 0, 0, 0, 0), start)
}

// ParsePingReply reads the body of the reply to a Ping.
func ParsePingReply(body []byte) (PingReply, error) {
	f := fields{b: body}
	m := PingReply{Echo: f.u64(), TimeMicros: f.u64(), ViewVersion: f.u64(), Touches: f.flag()}
	f.zero(7)
	return m, f.done()
}

// AppendGoodbye appends the message with which a server tells, unasked, that
// it will end the session and why. Requests under way are still answered
// unless the status is StatusProtocol.
func AppendGoodbye(dst []byte, s Status, detail string) []byte {
	start := len(dst)
	dst = begin(dst, TypeGoodbye, 0)
	le.PutUint16(dst[start+offStatus:], uint16(s))
	return finish(append(dst, cutText(detail)...), start)
}

// ParseGoodbye turns a Goodbye into the error it stands for; it copies.
func ParseGoodbye(h Header, body []byte) error {
	return &RemoteError{Status: h.Status, Detail: cleanText(body)}
}
