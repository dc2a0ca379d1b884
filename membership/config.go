package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A Profile is a set of intervals.
type Profile string

const (
	LAN  Profile = "lan"  // one building: a dead node is noticed in 5 to 8 s
	Fast Profile = "fast" // 1 to 2 s; a node that gets no processor for that long is called dead, too
	WAN  Profile = "wan"  // between sites: half a minute
)

// Config says how to take part. Zero values mean the default.
type Config struct {
	NodeID  string // see cluster.CheckNodeID
	Cluster string // the cluster's name, memberlist's label: a node of another name is not let in

	Bind      string   // HOST:PORT, for UDP and TCP; port 0 takes a free one
	Advertise string   // HOST or HOST:PORT under which others reach us; default: Bind, or a private address if that is a wildcard
	Join      []string // HOST:PORT of any members; our own address among them does not harm

	// Keys for encryption and authentication of all gossip, 16, 24 or 32 bytes
	// each. The first one encrypts, all decrypt. Without any, Insecure must be
	// said: gossip carries rkeys, and those are capabilities.
	Keys     [][]byte
	Insecure bool
	Allow    []netip.Prefix // from where gossip is taken; none: from everywhere

	Profile Profile        // default LAN
	Self    cluster.Member // incarnation, endpoints, map; what SetSelf can change later
	Reads   uint8          // newest feature level that the program reads; others find it in Member.Reads
	Life    Life           // of this start; its incarnation is Self's
	Table   *cluster.Table // published from the start, if there is one

	// ProofKey is known to the nodes of the cluster and to no other process,
	// also not to every holder of a gossip key. By it nodes prove their identity
	// when two have one id. If it is empty, every holder of a gossip key is
	// believed.
	ProofKey []byte

	Logger *slog.Logger // default: none

	// Transport carries the gossip instead of sockets; nil: UDP and TCP on Bind.
	Transport memberlist.NodeAwareTransport
}

// Errors of Start and Join. Errors caused by other nodes are in the log and in
// Stats, too, because they can come and go at any time.
var (
	ErrConfig       = errors.New("membership: configuration")
	ErrWrongKey     = errors.New("membership: the gossip keys differ: give both ends a common key in gossip.key_file")
	ErrWrongCluster = errors.New("membership: the names of the clusters differ (cluster.name)")
	ErrNotAllowed   = errors.New("membership: the other end does not take gossip from this address (gossip.allow)")
	ErrBusy         = errors.New("membership: the other end has too many gossip connections just now")
	ErrClosed       = errors.New("membership: closed")
)

// timing is what a Profile stands for, beyond memberlist's own settings.
type timing struct {
	rejoin  time.Duration // between attempts to reach seeds and dead members
	forget  time.Duration // how long nodes that are dead or have left stay in the view
	suspect time.Duration // how long a suspicion is shown after the last news of it

	prove    time.Duration // for another node of an id to prove itself
	conflict time.Duration // how long an unproved claim is shown after it was last made: several times between push/pulls
}

// settings are memberlist's configuration for a profile, with our own times beside
// it.
func (p Profile) settings() (*memberlist.Config, timing, error) {
	t := timing{rejoin: 5 * time.Second, forget: 24 * time.Hour,
		prove: 4 * time.Second, conflict: 90 * time.Second}
	var c *memberlist.Config
	switch p {
	case LAN, "":
		c = memberlist.DefaultLANConfig()
		// An idle round of gossip sends nothing, so half of the usual interval
		// costs little, and brings an advert to a hundred nodes within a second.
		c.GossipInterval = 100 * time.Millisecond
		c.TCPTimeout = 5 * time.Second
		c.DeadNodeReclaimTime = 10 * time.Second
	case Fast:
		c = memberlist.DefaultLANConfig()
		c.ProbeInterval, c.ProbeTimeout = 200*time.Millisecond, 100*time.Millisecond
		c.SuspicionMult, c.SuspicionMaxTimeoutMult = 3, 2
		c.GossipInterval = 50 * time.Millisecond
		c.PushPullInterval = 5 * time.Second
		c.TCPTimeout = 2 * time.Second
		c.DeadNodeReclaimTime = 2 * time.Second
		t.rejoin = time.Second
		t.prove, t.conflict = 2*time.Second, 20*time.Second
	case WAN:
		c = memberlist.DefaultWANConfig()
		c.GossipInterval = 200 * time.Millisecond
		c.TCPTimeout = 15 * time.Second
		c.DeadNodeReclaimTime = time.Minute
		t.rejoin = 15 * time.Second
		t.prove, t.conflict = 15*time.Second, 4*time.Minute
	default:
		return nil, t, fmt.Errorf("%w: profile %q: lan, fast and wan are known", ErrConfig, p)
	}
	c.EnableCompression = false // slow, and lets an attacker make a small packet large
	c.QueueCheckInterval = time.Minute
	t.suspect = time.Duration(c.SuspicionMult*c.SuspicionMaxTimeoutMult*4) * c.ProbeInterval
	return c, t, nil
}

// check refuses a configuration that cannot work, or that is not safe without
// Insecure.
func (c *Config) check() error {
	if err := cluster.CheckNodeID(c.NodeID); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := cluster.CheckName(c.Cluster); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if len(c.Keys) == 0 && !c.Insecure {
		return fmt.Errorf("%w: a gossip key is needed (gossip.key_file), because gossip carries rkeys; or say insecure", ErrConfig)
	}
	for i, k := range c.Keys {
		if err := memberlist.ValidateKey(k); err != nil {
			return fmt.Errorf("%w: gossip key %d has %d bytes; 16, 24 or 32 are possible", ErrConfig, i+1, len(k))
		}
	}
	return nil
}

// hostPort splits an address and finds the one IP it stands for.
func hostPort(ctx context.Context, what, addr, port string) (netip.Addr, uint16, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil && port != "" {
		host, p, err = net.SplitHostPort(net.JoinHostPort(addr, port))
	}
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("%w: %s %q is no HOST:PORT: %w", ErrConfig, what, addr, err)
	}
	n, err := net.LookupPort("udp", p)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("%w: %s %q: %w", ErrConfig, what, addr, err)
	}
	if host == "" {
		return netip.IPv4Unspecified(), uint16(n), nil
	}
	ips, err := lookup(ctx, host)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("%w: %s %q: %w", ErrConfig, what, addr, err)
	}
	return ips[0], uint16(n), nil
}
