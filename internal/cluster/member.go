package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// A State is what gossip reports of a member. It is a guess about a remote
// process, so no node loses a shard or a right by it.
type State uint8

const (
	Alive   State = 1 // answers
	Suspect State = 2 // did not answer the last probe; may still
	Left    State = 3 // said goodbye
	Dead    State = 4 // did not answer for long
)

var stateNames = [...]string{Alive: "alive", Suspect: "suspect", Left: "left", Dead: "dead"}

func (s State) String() string {
	if s >= Alive && s <= Dead {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// A Role is what a member does in the cluster.
type Role uint8

// RoleServer is a node that may own shards. Clients are no members: they hold
// no gossip key.
const RoleServer Role = 1

func (r Role) String() string {
	if r == RoleServer {
		return "server"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// An Endpoint is where a node takes connections of one fabric.
type Endpoint struct {
	Fabric string // "verbs", "iwarp", "shm"
	Addr   string // HOST:PORT, or a path
}

func (e Endpoint) String() string { return e.Fabric + "://" + e.Addr }

// A Member is what gossip knows of one node. It is immutable once it is in a
// View.
type Member struct {
	ID          string
	Role        Role
	Incarnation uint64     // of its store: random, new at each start; not ordered
	Gossip      string     // HOST:PORT of its gossip
	Endpoints   []Endpoint // in the node's order of preference

	// These are of the table of regions that it has published last, with the
	// number of its regions; all 0: none.
	TableVersion, TableDigest uint64
	Regions                   uint32

	// These are of the shard map that it has committed; both 0: none.
	MapVersion, MapDigest uint64

	// Reads is the newest feature level that its program reads. Gossip carries it beside AppendMeta (package membership), and a View that is encoded leaves it out.
	Reads uint8

	State State
	Since time.Time // when State was last seen to change, by the teller's clock; milliseconds
}

// check holds what a member says of itself to the bounds. The members of a View
// have an ID, an address and a state, too.
func (m *Member) check() error {
	switch {
	case m.Role != RoleServer:
		return malformed("%v of node %q is unknown", m.Role, clip(m.ID))
	case len(m.Endpoints) > MaxEndpoints:
		return malformed("node %q has %d endpoints, at most %d", clip(m.ID), len(m.Endpoints), MaxEndpoints)
	}
	for _, e := range m.Endpoints {
		if !printable(e.Fabric, 15) || !printable(e.Addr, MaxAddr) {
			return malformed("node %q has an endpoint %q at %q", clip(m.ID), clip(e.Fabric), clip(e.Addr))
		}
	}
	return nil
}

// MaxMeta is the most that AppendMeta writes: the metadata of a node travels
// in every message about it, up to a hundred times a second in a large
// cluster, and the gossip library ends the process above 512.
const MaxMeta = 200

const metaFormat = 1

// AppendMeta appends what a node says of itself, for gossip:
//
//	┌format┬role┬endpoints┬ 0 ┬incarnation┐
//	└1     ┴1   ┴1        ┴1  ┴8          ┘ 12
//	┌table version┬table digest┬regions┬map version┬map digest┐
//	└8            ┴8           ┴4      ┴8          ┴8         ┘ 48
//	per endpoint: ┌fabric┬4┬IPv4┬port┐ ┌fabric┬6┬IPv6┬port┐ ┌fabric┬0┬address┐
//	              └1+n   ┴1┴4   ┴2   ┘ └1+n   ┴1┴16  ┴2   ┘ └1+n   ┴1┴1+n    ┘
//
// An address that is an IP and a port as netip writes it always takes the short
// form; every other address stands there as text. The ID, the gossip address
// and the state are not in it, because gossip carries them already. The error
// is ErrMalformed if a bound is broken or the result would be above MaxMeta.
func AppendMeta(dst []byte, m *Member) ([]byte, error) {
	if err := m.check(); err != nil {
		return dst, err
	}
	start := len(dst)
	dst = append(dst, metaFormat, byte(m.Role), byte(len(m.Endpoints)), 0)
	dst = le.AppendUint64(dst, m.Incarnation)
	dst = le.AppendUint64(dst, m.TableVersion)
	dst = le.AppendUint64(dst, m.TableDigest)
	dst = le.AppendUint32(dst, m.Regions)
	dst = le.AppendUint64(dst, m.MapVersion)
	dst = le.AppendUint64(dst, m.MapDigest)
	for _, e := range m.Endpoints {
		dst = appendText(dst, e.Fabric)
		if ap, ok := packable(e.Addr); !ok {
			dst = appendText(append(dst, 0), e.Addr)
		} else if ap.Addr().Is4() {
			ip := ap.Addr().As4()
			dst = le.AppendUint16(append(append(dst, 4), ip[:]...), ap.Port())
		} else {
			ip := ap.Addr().As16()
			dst = le.AppendUint16(append(append(dst, 6), ip[:]...), ap.Port())
		}
	}
	if n := len(dst) - start; n > MaxMeta {
		return dst[:start], malformed("the metadata of node %q has %d bytes, at most %d: advertise fewer or shorter endpoints", clip(m.ID), n, MaxMeta)
	}
	return dst, nil
}

// packable returns the address in numbers, if writing those again gives the
// same text.
func packable(addr string) (netip.AddrPort, bool) {
	ap, err := netip.ParseAddrPort(addr)
	return ap, err == nil && ap.Addr().Zone() == "" && ap.String() == addr
}

// ParseMeta reads what AppendMeta wrote. ErrMalformed.
func ParseMeta(b []byte) (Member, error) {
	if len(b) > MaxMeta {
		return Member{}, malformed("metadata of %d bytes, at most %d", len(b), MaxMeta)
	}
	f := fields{b: b}
	f.format("metadata", metaFormat)
	m := Member{Role: Role(f.u8())}
	count := int(f.u8())
	f.zero(1)
	m.Incarnation = f.u64()
	m.TableVersion, m.TableDigest, m.Regions = f.u64(), f.u64(), f.u32()
	m.MapVersion, m.MapDigest = f.u64(), f.u64()
	if count > MaxEndpoints {
		f.fail(malformed("%d endpoints, at most %d", count, MaxEndpoints))
	}
	for i := 0; i < count && f.err == nil; i++ {
		e := Endpoint{Fabric: f.text()}
		switch form := f.u8(); form {
		case 0:
			e.Addr = f.text()
			if _, short := packable(e.Addr); short {
				f.fail(malformed("address %q in its long form", e.Addr))
			}
		case 4:
			if ip := f.take(4); ip != nil {
				e.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip)), f.u16()).String()
			}
		case 6:
			if ip := f.take(16); ip != nil {
				e.Addr = netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip)), f.u16()).String()
			}
		default:
			f.fail(malformed("an address of form %d", form))
		}
		m.Endpoints = append(m.Endpoints, e)
	}
	if err := f.done(); err != nil {
		return Member{}, err
	}
	if err := m.check(); err != nil {
		return Member{}, err
	}
	return m, nil
}

// String names a member in a log line.
func (m *Member) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v %v", m.ID, m.Role, m.State)
	for _, e := range m.Endpoints {
		fmt.Fprintf(&b, " %v", e)
	}
	return b.String()
}
