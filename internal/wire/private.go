package wire

import (
	"crypto/hmac"
	"crypto/sha256"
)

// The private data of the connection. The client's travels with the connection
// request, the server's with the acceptance or the refusal:
//
//	Connect  ┌magic "RKV1"┬min┬max┬flags┬tenant┬client nonce┬MAC ┐  48 bytes (at most 56 fit)
//	         └4           ┴1  ┴1  ┴2    ┴8     ┴16          ┴16  ┘
//	Accept   ┌magic "RKV1"┬ver┬ 0 ┬flags┬server nonce┬incarnation┬MAC ┐  48 bytes
//	         └4           ┴1  ┴1  ┴2    ┴16          ┴8          ┴16  ┘
//	Reject   ┌magic "RKV1"┬min┬max┬status┐  8 bytes
//	         └4           ┴1  ┴1  ┴2     ┘
//
// Each MAC is HMAC-SHA256 under the (hashed) secret over a label, what went before on
// this connection, and the bytes in front of it. So the server's MAC proves that it
// knows the secret *and* answers this very request, and the MAC in Hello (32 bytes)
// proves the same of the client: a replayed Connect meets a fresh server nonce and
// fails at Hello. Flags and versions are under the MACs, so an attacker on the way
// cannot take them off.
//
// With an empty secret the same bytes travel under an empty key: the store is public,
// and a client that has a secret is refused like one with a wrong one.
const (
	TenantSize  = 8
	NonceSize   = 16
	MACSize     = 16 // truncated, in private data
	FullMACSize = 32 // in Hello

	ConnectSize = 4 + 1 + 1 + 2 + TenantSize + NonceSize + MACSize
	AcceptSize  = 4 + 1 + 1 + 2 + NonceSize + 8 + MACSize
	RejectSize  = 4 + 1 + 1 + 2
)

// The smallest private data that every fabric carries with a request.
var _ = [56 - ConnectSize]struct{}{}

// magic opens all private data. The 1 is the shape of the private data
// itself; the versions behind it are those of the messages.
const magic = "RKV1"

// Features that private data may name. Those in the low byte may be ignored by
// an end that does not know them; those in the high byte must be understood.
const featuresMustKnow = 0xff00

// FeatureAside in a Connect says that the client knows that a held place may stand in
// no region (layout.Nowhere) and is fetched then. A client that does not name it would
// take the place for one in a region that it has not heard of yet.
const FeatureAside = 1 << 0

// FeaturePack in a Connect and in an Accept says that its sender understands packs (pack.go). Who
// has not named it is sent none.
const FeaturePack = 1 << 1

// FeatureParts in a Connect says that the client knows values in parts (layout.Head). A client
// that does not name it is told of MaxValueLen as the bound of values, and gets no head.
const FeatureParts = 1 << 2

// A Nonce is 16 random bytes, fresh for every connection.
type Nonce [NonceSize]byte

// A Tenant says which tenant's secret the MACs are under. It is no secret, and proves
// nothing.
type Tenant [TenantSize]byte

// TenantOf returns the Tenant of a name: the first bytes of a hash, so that a
// name of any length fits. "" has the zero Tenant: the main secret's.
func TenantOf(name string) (t Tenant) {
	if name != "" {
		sum := sha256.Sum256([]byte("rkv tenant" + name))
		copy(t[:], sum[:])
	}
	return t
}

// A Connect is the private data of a connection request.
type Connect struct {
	Min, Max uint8 // versions that the client speaks
	Features uint16
	Tenant   Tenant
	Nonce    Nonce
	MAC      [MACSize]byte
}

// An Accept is the private data of an acceptance.
type Accept struct {
	Version     uint8 // the one both will use
	Features    uint16
	Nonce       Nonce
	Incarnation uint64 // of the store behind this server
	MAC         [MACSize]byte
}

// A Reject is the private data of a refusal.
type Reject struct {
	Min, Max uint8  // versions that the server speaks
	Status   Status // why: StatusVersion, StatusAuth, StatusBusy, StatusClosing, StatusProtocol
}

// AppendConnect appends a connection request's private data; the MAC is
// computed here, whatever c.MAC says.
func AppendConnect(dst []byte, secret []byte, c Connect) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, c.Min, c.Max)
	dst = le.AppendUint16(dst, c.Features)
	dst = append(dst, c.Tenant[:]...)
	dst = append(dst, c.Nonce[:]...)
	sum := mac(secret, "rkv connect", dst[start:])
	return append(dst, sum[:MACSize]...)
}

// ParseConnect reads a connection request's private data. The MAC is not
// checked: VerifyConnect does that. ErrMagic, ErrShort, ErrTrailing, ErrRange;
// ErrVersion, with the versions, for a client that speaks older ones alone: its
// request has another shape behind them.
func ParseConnect(b []byte) (Connect, error) {
	f, err := private(b)
	if err != nil {
		return Connect{}, err
	}
	c := Connect{Min: f.u8(), Max: f.u8()}
	if f.err == nil && c.Min != 0 && c.Min <= c.Max && c.Max < VersionMin {
		return c, ErrVersion
	}
	c.Features = f.u16()
	copy(c.Tenant[:], f.take(TenantSize))
	copy(c.Nonce[:], f.take(NonceSize))
	copy(c.MAC[:], f.take(MACSize))
	if err := f.done(); err != nil {
		return Connect{}, err
	}
	if c.Min > c.Max || c.Min == 0 {
		return Connect{}, ErrRange
	}
	return c, nil
}

// VerifyConnect checks the MAC of a request's private data in constant time.
func VerifyConnect(secret, connect []byte) bool {
	n := ConnectSize - MACSize
	if len(connect) != ConnectSize {
		return false
	}
	sum := mac(secret, "rkv connect", connect[:n])
	return hmac.Equal(sum[:MACSize], connect[n:])
}

// Choose returns the version both ends will use: the highest in common.
// It fails with StatusVersion or, for a feature that must be understood and
// is not, StatusProtocol.
func (c Connect) Choose() (uint8, Status) {
	v := min(c.Max, VersionMax)
	switch {
	case v < max(c.Min, VersionMin):
		return 0, StatusVersion
	case c.Features&featuresMustKnow != 0:
		return 0, StatusProtocol
	}
	return v, StatusOK
}

// AppendAccept appends an acceptance's private data. The MAC covers connect,
// the private data that the request carried.
func AppendAccept(dst []byte, secret, connect []byte, a Accept) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, a.Version, 0)
	dst = le.AppendUint16(dst, a.Features)
	dst = append(dst, a.Nonce[:]...)
	dst = le.AppendUint64(dst, a.Incarnation)
	sum := mac(secret, "rkv accept", connect, dst[start:])
	return append(dst, sum[:MACSize]...)
}

// ParseAccept reads an acceptance's private data. The MAC is not checked:
// VerifyAccept does that.
func ParseAccept(b []byte) (Accept, error) {
	f, err := private(b)
	if err != nil {
		return Accept{}, err
	}
	a := Accept{Version: f.u8()}
	f.zero(1)
	a.Features = f.u16()
	copy(a.Nonce[:], f.take(NonceSize))
	a.Incarnation = f.u64()
	copy(a.MAC[:], f.take(MACSize))
	if err := f.done(); err != nil {
		return Accept{}, err
	}
	if a.Version < VersionMin || a.Version > VersionMax {
		return Accept{}, ErrVersion
	}
	if a.Features&featuresMustKnow != 0 {
		return Accept{}, ErrRange
	}
	return a, nil
}

// VerifyAccept checks, in constant time, that the server knows the secret and
// answered this connect.
func VerifyAccept(secret, connect, accept []byte) bool {
	n := AcceptSize - MACSize
	if len(accept) != AcceptSize {
		return false
	}
	sum := mac(secret, "rkv accept", connect, accept[:n])
	return hmac.Equal(sum[:MACSize], accept[n:])
}

// AppendReject appends a refusal's private data.
func AppendReject(dst []byte, r Reject) []byte {
	dst = append(dst, magic...)
	dst = append(dst, r.Min, r.Max)
	return le.AppendUint16(dst, uint16(r.Status))
}

// ParseReject reads a refusal's private data. It carries no MAC, because neither end
// has authenticated yet. An attacker that can forge one can keep a client out, but an
// attacker on the way can do that anyhow; no client is ever let in because of it.
func ParseReject(b []byte) (Reject, error) {
	f, err := private(b)
	if err != nil {
		return Reject{}, err
	}
	r := Reject{Min: f.u8(), Max: f.u8(), Status: Status(f.u16())}
	if err := f.done(); err != nil {
		return Reject{}, err
	}
	if r.Status == StatusOK {
		return Reject{}, ErrRange
	}
	return r, nil
}

// Unpad cuts off the zeros behind private data of the given size: an InfiniBand or
// RoCE connection manager carries it in a field of fixed length and does not tell the
// length of the data (IBTA 12.6.5 to 12.6.8). Data that is not padded so is returned
// as it is, and the parsers refuse it.
func Unpad(b []byte, size int) []byte {
	if len(b) <= size {
		return b
	}
	for _, v := range b[size:] {
		if v != 0 {
			return b
		}
	}
	return b[:size:size]
}

// private checks the magic and returns the fields behind it.
func private(b []byte) (fields, error) {
	if len(b) < len(magic) {
		return fields{}, ErrShort
	}
	if string(b[:len(magic)]) != magic {
		return fields{}, ErrMagic
	}
	return fields{b: b[len(magic):]}, nil
}

// mac is HMAC-SHA256 over a label and parts, each preceded by its length so that no
// two lists of parts have the same bytes. The key is a hash of the secret: HMAC itself
// fills short keys up with zeros, and would take a secret and the same with a zero
// behind it for one. mac allocates, so it is for the set-up only.
func mac(secret []byte, label string, parts ...[]byte) [FullMACSize]byte {
	key := sha256.Sum256(secret)
	h := hmac.New(sha256.New, key[:])
	var n [8]byte
	h.Write(append(le.AppendUint64(n[:0], uint64(len(label))), label...))
	for _, p := range parts {
		h.Write(le.AppendUint64(n[:0], uint64(len(p))))
		h.Write(p)
	}
	var out [FullMACSize]byte
	h.Sum(out[:0])
	return out
}
