package session

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// setupGrace is how long a connection that is being set up is left alone by
// newcomers of its own source: an honest client is done in milliseconds. Without
// it, clients of one machine that all come at once would push each other out and
// none would get in; with it the newcomer is refused as busy and comes again.
const setupGrace = 200 * time.Millisecond

// A Source is where a connection request comes from. host is what counts as one
// machine: an IPv4 address, and of IPv6 the /64, of which a machine may take any
// address. net is what one attacker may well have all of: a /24, or a /48. Where
// an address says neither (link-local, loopback of IPv6), host is the address.
type Source struct{ host, net string }

// SourceOf is the source of a peer's address, given as HOST:PORT.
func SourceOf(addr string) Source {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		if host, _, err := net.SplitHostPort(addr); err == nil {
			addr = host
		}
		return Source{addr, addr}
	}
	ip := ap.Addr().Unmap()
	prefix := func(bits int) string {
		p, err := ip.WithZone("").Prefix(bits)
		if err != nil {
			return ip.String()
		}
		return p.String()
	}
	switch {
	case ip.Is4():
		return Source{ip.String(), prefix(24)}
	case ip.IsLinkLocalUnicast() || ip.IsLoopback():
		return Source{ip.String(), ip.String()}
	}
	return Source{prefix(64), prefix(48)}
}

// A Place is the place of one connection that is being set up.
type Place struct {
	Source
	since time.Time
	nonce wire.Nonce
	held  bool   // it has its place; guarded by setups' lock, as the next two are
	known bool   // nonce is set
	group *Group // where its session will be; nil until its tenant is known
	// lost is done when the place was given to another connection: then the goroutine
	// that sets this one up ends it.
	lost context.Context
	lose context.CancelFunc
}

// setups are the places for connections that are being set up. When all are
// taken, the oldest of the fullest source goes: first of the fullest net, then of
// its fullest host. So a source that opens connections without saying Hello takes
// places from itself, however many it opens. Its methods are called with registry.mu held.
type setups struct {
	limit, perHost int
	grace          time.Duration
	now            func() time.Time

	places []*Place // oldest first
	ending int      // have lost their place, and are not cleared up yet
	hosts  map[string]int
	nonces map[wire.Nonce]*Place
}

func newSetups(limit, perHost int, grace time.Duration) setups {
	return setups{
		limit: limit, perHost: perHost, grace: grace, now: time.Now,
		hosts: make(map[string]int), nonces: make(map[wire.Nonce]*Place),
	}
}

// take gives a newcomer a place, that of another connection if need be; nil if it must be
// refused. room is how many places there may be at all now, because of the bound on
// sessions. met are the bounds that were reached on the way.
func (t *setups) take(src Source, room int) (p *Place, met []base.Bound) {
	if t.hosts[src.host] >= t.perHost {
		met = append(met, base.BoundHostSetups)
		if !t.evict(t.oldest(func(o *Place) bool { return o.host == src.host }), false) {
			return nil, met
		}
	}
	if len(t.places) >= min(t.limit, room) {
		if len(t.places) >= t.limit {
			met = append(met, base.BoundSetups)
		} else {
			met = append(met, base.BoundSessions)
		}
		victim, fairer := t.victim(src, anywhere)
		if !t.evict(victim, fairer) {
			return nil, met
		}
	}
	p = &Place{Source: src, since: t.now(), held: true}
	p.lost, p.lose = context.WithCancel(context.Background())
	t.places = append(t.places, p)
	t.hosts[src.host]++
	return p, met
}

// victim is the one of the places in a set that goes for a newcomer of src: the oldest of the
// fullest source there. fairer says that this source would still have no less than
// the newcomer's then.
func (t *setups) victim(src Source, in func(*Place) bool) (_ *Place, fairer bool) {
	net, mine, most := t.fullest(src.net, func(p *Place) (string, bool) { return p.net, in(p) })
	fairer = most > mine+1
	if !fairer && mine > 0 {
		net = src.net
	}
	of := func(p *Place) (string, bool) { return p.host, in(p) && p.net == net }
	host, mine, most := t.fullest(src.host, of)
	if net == src.net {
		fairer = most > mine+1
	}
	for _, p := range t.places {
		if k, ok := of(p); ok && k == host {
			return p, fairer
		}
	}
	return nil, false
}

// fullest counts places by a key, of those that have it, and returns the key with the
// most; of several the one with the oldest place, but own before all.
func (t *setups) fullest(own string, key func(*Place) (string, bool)) (k string, mine, most int) {
	counts := make(map[string]int)
	for _, p := range t.places {
		if k, ok := key(p); ok {
			counts[k]++
		}
	}
	k = own
	for _, p := range t.places { // oldest first
		if o, ok := key(p); ok && counts[o] > counts[k] {
			k = o
		}
	}
	return k, counts[own], counts[k]
}

func anywhere(*Place) bool { return true }

// makeRoom takes the place of one that is being set up in p's space, because there
// is nothing left for p, which has a place: sessions of a space, and what they
// receive into, are bounded, too. It comes too late for p, whose client is told to
// come again.
func (t *setups) makeRoom(p *Place) {
	victim, fairer := t.victim(p.Source, func(o *Place) bool { return o != p && o.group == p.group })
	t.evict(victim, fairer)
}

func (t *setups) oldest(is func(*Place) bool) *Place {
	for _, p := range t.places {
		if is(p) {
			return p
		}
	}
	return nil
}

// evict takes p's place away; false if it must not: unless that makes things
// fairer among sources, p has a grace. Connections that are being cleared up are
// bounded, too: as many as there are places.
func (t *setups) evict(p *Place, fairer bool) bool {
	if p == nil || t.ending >= t.limit || !fairer && t.now().Sub(p.since) < t.grace {
		return false
	}
	t.remove(p)
	t.ending++
	p.lose()
	return true
}

// claim notes the nonce of a request whose MAC was found right. false: the same
// request is being set up already, so this one is a copy. The original came first, because
// only the client had seen it before.
func (t *setups) claim(p *Place, nonce wire.Nonce) bool {
	if t.nonces[nonce] != nil {
		return false
	}
	if p.held {
		p.nonce, p.known = nonce, true
		t.nonces[nonce] = p
	}
	return true
}

// give returns p's place, if it still has one: it is open, or cleared up. false:
// it had lost it.
func (t *setups) give(p *Place) bool {
	if !p.held {
		return false
	}
	t.remove(p)
	return true
}

// cleared is give for one that is cleared up.
func (t *setups) cleared(p *Place) {
	if !t.give(p) {
		t.ending--
	}
}

func (t *setups) remove(p *Place) {
	p.held = false
	for i, o := range t.places {
		if o == p {
			t.places = append(t.places[:i], t.places[i+1:]...)
			break
		}
	}
	if t.hosts[p.host]--; t.hosts[p.host] <= 0 {
		delete(t.hosts, p.host)
	}
	if p.known {
		delete(t.nonces, p.nonce)
	}
}
