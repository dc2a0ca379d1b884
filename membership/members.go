package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// Members is this node's part in the cluster. It is safe for concurrent use.
type Members struct {
	*Keyring
	*journal
	running
	cfg   Config
	time  timing
	list  *memberlist.Memberlist
	door  *transport
	queue memberlist.TransmitLimitedQueue
	stats counters

	meta  atomic.Pointer[[]byte] // what we say of ourselves, for memberlist
	count atomic.Int64           // members, for the queue

	in      *inbox        // for run
	out     *outbox       // for the senders
	dirty   chan struct{} // members changed, for run
	changed chan struct{} // our metadata changed, for advertise

	view    atomic.Pointer[cluster.View]
	tables  *tables
	referee *referee
	joiner  *joiner
	fault   *failure

	mu    sync.Mutex
	self  cluster.Member
	peers map[string]*peer
	next  chan struct{} // closed at the next change of view or tables
	left  bool
}

// running is the goroutines of a node, and its end.
type running struct {
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once
}

// A failure is why this node must not go on. Members.mu guards err.
type failure struct {
	happened chan struct{} // closed when err is set
	err      error
}

// A peer is what we know of another node. mu guards it.
type peer struct {
	cluster.Member
	node    memberlist.Node // where to send; a copy
	suspect time.Time       // when our own last probe failed; zero: none has since
	tcpOnly bool            // our last probe was answered by TCP, and not by UDP
	bye     uint64          // the incarnation that said goodbye, 0: none
	table   *table
	came    uint64    // when table came: a number that rises with each table of any node
	stale   time.Time // since when table differs from the metadata; zero: it does not
	stated  stated    // its next life, which gossip has not let in yet
}

// Start begins to take part. It returns as soon as the node listens; joining goes on
// in the background until Close, because all nodes of a cluster may be starting.
// Faults of the configuration or the address are an ErrConfig or the system's error;
// faults of others are in the log and in Stats. Close ends it; ctx bounds Start alone.
func Start(ctx context.Context, cfg Config) (*Members, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	conf, timing, err := cfg.Profile.settings()
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := newMembers(cfg, timing)
	m.self.ID, m.self.State, m.self.Since = cfg.NodeID, cluster.Alive, time.Now()
	m.self.Role, m.self.Reads = cmp.Or(m.self.Role, cluster.RoleServer), min(cfg.Reads, maxReads)
	m.queue.NumNodes = func() int { return int(m.count.Load()) }
	m.queue.RetransmitMult = conf.RetransmitMult
	m.count.Store(1)
	if err := m.encodeSelfLocked(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cfg.Table != nil {
		if err := m.Publish(cfg.Table); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	m.publishView()

	conf.Name, conf.Label = cfg.NodeID, cfg.Cluster
	conf.Logger = log.New(libraryLog{m}, "", 0)
	if len(cfg.Keys) > 0 {
		if m.ring, err = memberlist.NewKeyring(cfg.Keys[1:], cfg.Keys[0]); err != nil {
			return nil, fmt.Errorf("%w: gossip keys: %w", ErrConfig, err)
		}
		conf.Keyring = m.ring
	}
	// The library carries three numbers for its user with each node, and refuses a node whose third one is outside of the first two of another. Programs that know no levels say 1, 1, 1: so
	// the second one tells of levels, and the others stay.
	conf.DelegateProtocolMin, conf.DelegateProtocolMax, conf.DelegateProtocolVersion = 1, 1+min(cfg.Reads, maxReads), 1
	calls := callbacks{m}
	conf.Delegate, conf.Events, conf.Alive, conf.Merge, conf.Conflict, conf.Ping = calls, calls, calls, calls, calls, calls
	for _, p := range cfg.Allow {
		conf.CIDRsAllowed = append(conf.CIDRsAllowed, net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())})
	}
	if err := m.listen(ctx, conf); err != nil {
		m.cancel()
		return nil, err
	}
	for _, f := range []func(){
		m.run, m.advertise, m.joiner.run, m.referee.runOwnClaims,
		func() { m.referee.judgeAll(m.referee.unknown) },
		func() { m.journal.write(m.ctx) },
	} {
		m.wg.Go(f)
	}
	for range judges {
		m.wg.Go(func() { m.referee.judgeAll(m.referee.claims) })
	}
	for range senders {
		m.wg.Go(func() { m.out.send(m.ctx, m.list) })
	}
	return m, nil
}

// maxReads is the highest feature level that can be told: the number in which it travels is one above it, and has eight bits.
const maxReads = 254

// newMembers is a node without a network and without goroutines.
func newMembers(cfg Config, t timing) *Members {
	m := &Members{
		Keyring: &Keyring{logger: cfg.Logger}, journal: newJournal(cfg.Logger),
		cfg: cfg, time: t, self: cfg.Self,
		dirty: make(chan struct{}, 1), changed: make(chan struct{}, 1), next: make(chan struct{}),
		peers: map[string]*peer{}, fault: &failure{happened: make(chan struct{})},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.in, m.out = newInbox(&m.stats), newOutbox(&m.stats.dropped)
	m.tables, m.referee, m.joiner = &tables{m: m}, newReferee(m), newJoiner(m)
	return m
}

// listen opens the sockets, behind the doorman, and starts memberlist.
func (m *Members) listen(ctx context.Context, conf *memberlist.Config) error {
	inner := m.cfg.Transport
	if inner == nil {
		ip, port, err := hostPort(ctx, "gossip.bind", m.cfg.Bind, "")
		if err != nil {
			return err
		}
		var any netip.Addr
		if m.cfg.Advertise != "" {
			if any, _, err = hostPort(ctx, "gossip.advertise", m.cfg.Advertise, "0"); err != nil {
				return err
			}
		} else if ip.IsUnspecified() && ip.Is6() {
			return fmt.Errorf("%w: gossip.bind is %s, every address: say in gossip.advertise under which one others reach this node", ErrConfig, m.cfg.Bind)
		}
		sockets, err := open(ctx, ip, int(port), conf.Logger)
		if err != nil {
			return fmt.Errorf("membership: gossip cannot listen at %s: %w", m.cfg.Bind, err)
		}
		inner = sockets
		conf.BindAddr, conf.BindPort = ip.String(), sockets.GetAutoBindPort()
		conf.AdvertisePort = conf.BindPort
		if any.IsValid() {
			conf.AdvertiseAddr = any.String()
			if _, p, err := hostPort(ctx, "gossip.advertise", m.cfg.Advertise, "0"); err == nil && p != 0 {
				conf.AdvertisePort = int(p)
			}
		}
	}
	m.door = newTransport(inner, m.cfg.Cluster, m.cfg.Allow, &m.stats, m.say)
	conf.Transport = m.door
	// memberlist assumes that a node lets itself in.
	if ip, _, err := m.door.FinalAdvertiseAddr(conf.AdvertiseAddr, conf.AdvertisePort); err != nil {
		_ = m.door.Shutdown()
		return fmt.Errorf("%w: no address to advertise: say one in gossip.advertise: %w", ErrConfig, err)
	} else if !m.door.allowed(&net.UDPAddr{IP: ip}) {
		_ = m.door.Shutdown()
		return fmt.Errorf("%w: this node's own address %v is outside gossip.allow", ErrConfig, ip)
	}
	list, err := memberlist.Create(conf)
	if err != nil {
		_ = m.door.Shutdown()
		return fmt.Errorf("membership: %w", err)
	}
	m.list = list
	addr := list.LocalNode().Address()
	m.mu.Lock()
	m.self.Gossip = addr
	m.mu.Unlock()
	m.publishView()
	m.log.Info("gossip listens", "at", addr, "cluster", m.cfg.Cluster, "profile", cmp.Or(m.cfg.Profile, LAN), "encrypted", len(m.cfg.Keys) > 0)
	if len(m.cfg.Keys) == 0 {
		m.log.Warn("gossip is neither encrypted nor authenticated: whoever reaches this port can read rkeys and forge members (insecure was said)")
	}
	return nil
}

// open makes UDP and TCP listen on one port. If any port will do, the one that TCP got
// may be taken for UDP: then open tries again.
func open(ctx context.Context, ip netip.Addr, port int, logger *log.Logger) (*memberlist.NetTransport, error) {
	for try := 0; ; try++ {
		t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{ip.String()}, BindPort: port, Logger: logger})
		if err == nil || port != 0 || try == 10 || ctx.Err() != nil {
			return t, err
		}
	}
}

// View returns the nodes of the cluster, as far as this node knows them. It is never
// nil.
func (m *Members) View() *cluster.View { return m.view.Load() }

// Changed returns a channel that is closed at the next change of the view or
// of a table. Take it before looking at what may change.
func (m *Members) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

// Failed returns a channel that is closed when this node must not go on in the
// cluster: Err says why, a *StandDown. It may happen at any time: two nodes of one id
// that were cut off from each other meet when the cut heals.
func (m *Members) Failed() <-chan struct{} { return m.fault.happened }

// Err returns why Failed is closed, nil if it is not.
func (m *Members) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fault.err
}

// setLocked notes why the node must not go on; the first reason counts.
func (f *failure) setLocked(err error) {
	if f.err == nil {
		f.err = err
		close(f.happened)
	}
}

// SetSelf changes what this node says of itself: incarnation, endpoints, map. ID,
// state, gossip address and what Publish sets stay as they are. f is called under a
// lock: it must only assign. If the result is too large SetSelf returns ErrMalformed
// of package cluster, and nothing has changed.
func (m *Members) SetSelf(f func(*cluster.Member)) error {
	m.mu.Lock()
	old := m.self
	next := old
	next.Endpoints = slices.Clone(old.Endpoints)
	f(&next)
	next.ID, next.Role, next.Gossip, next.State, next.Since, next.Reads = old.ID, old.Role, old.Gossip, old.State, old.Since, old.Reads
	next.TableVersion, next.TableDigest, next.Regions = old.TableVersion, old.TableDigest, old.Regions
	m.self = next
	var err error
	if next.Incarnation != old.Incarnation && m.tables.own != nil {
		// The table belongs to another life of the store, so it is forgotten.
		m.self.TableVersion, m.self.TableDigest, m.self.Regions = 0, 0, 0
		m.tables.own, m.tables.encoded = nil, nil
	}
	if err = m.encodeSelfLocked(); err != nil {
		m.self = old
	}
	m.mu.Unlock()
	if err == nil {
		signal(m.changed)
		signal(m.dirty)
	}
	return err
}

// encodeSelfLocked makes the metadata anew.
func (m *Members) encodeSelfLocked() error {
	b, err := cluster.AppendMeta(nil, &m.self)
	if err == nil {
		m.meta.Store(&b)
	}
	return err
}

// advertise tells memberlist of changed metadata. That call waits until the news is
// out, so changes in the meantime become one.
func (m *Members) advertise() {
	for {
		select {
		case <-m.changed:
			if err := m.list.UpdateNode(2 * time.Second); err != nil && m.ctx.Err() == nil {
				m.say(event{level: slog.LevelDebug, kind: "advertise", msg: "the news of changed metadata is slow to go out", args: []any{"err", err}})
			}
		case <-m.ctx.Done():
			return
		}
	}
}

// signal wakes the goroutine behind a channel of capacity one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Leave says goodbye, so that others need not find out. It returns when the news has
// gone out as often as gossip repeats it, when no node is left to hear it, or when ctx
// ends. The node still receives gossip; Close follows.
func (m *Members) Leave(ctx context.Context) error {
	m.mu.Lock()
	first := !m.left
	m.left = true
	bye := goodbye{m.cfg.NodeID, m.self.Incarnation}
	twin := errors.Is(m.fault.err, ErrDuplicateID)
	m.mu.Unlock()
	if !first || m.ctx.Err() != nil {
		return nil
	}
	if twin {
		m.referee.farewell(ctx, bye)
	} else {
		m.announceLeave()
	}
	// memberlist puts its own goodbye into each packet before ours, so once ours has
	// gone out, its own has too.
	out := &broadcast{name: "bye " + bye.node, bytes: bye.append(nil), finished: make(chan struct{})}
	m.queue.QueueBroadcast(out)
	for {
		changed := m.Changed()
		if m.alone() {
			return nil
		}
		select {
		case <-out.finished:
			return nil
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-m.ctx.Done():
			return ErrClosed
		}
	}
}

// announceLeave makes memberlist say goodbye. memberlist would wait for the news to go
// out, whatever happens meanwhile, so Leave does the waiting itself.
func (m *Members) announceLeave() {
	defer func() { _ = recover() }() // memberlist panics if it was shut down meanwhile
	_ = m.list.Leave(time.Millisecond)
}

// alone reports whether no other member is alive.
func (m *Members) alone() bool {
	for _, p := range m.View().Members {
		if p.ID != m.cfg.NodeID && (p.State == cluster.Alive || p.State == cluster.Suspect) {
			return false
		}
	}
	return true
}

// begin enters one more goroutine into the books, unless Close has begun.
func (m *Members) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return false
	}
	m.wg.Add(1)
	return true
}

// Close ends everything: when it returns, no goroutine of this package is left, and
// memberlist's end by themselves within a probe's time. Without a Leave before it,
// others will call this node dead. The last View and tables stay readable.
func (m *Members) Close() error {
	m.once.Do(func() {
		m.mu.Lock()
		m.cancel()
		m.mu.Unlock()
		if err := m.list.Shutdown(); err != nil {
			m.log.Warn("gossip: shutting down", "err", err)
		}
		m.wg.Wait()
	})
	return nil
}

// lookup resolves a host within a bound.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(ips) == 0 {
		return nil, errors.New("no address of that name")
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	// IPv4 comes first: a wildcard of one family is the usual mistake.
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return ips[:min(len(ips), 16)], nil
}

var _ io.Writer = libraryLog{}

// local reports whether a text is our own gossip address. memberlist writes its own
// record of it anew with each change of our metadata.
func (m *Members) local(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.EqualFold(addr, m.self.Gossip)
}
