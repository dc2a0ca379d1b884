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

// Members is this node's part in the cluster. Safe for concurrent use.
type Members struct {
	cfg     Config
	time    timing
	log     *slog.Logger
	list    *memberlist.Memberlist
	door    *transport
	queue   memberlist.TransmitLimitedQueue
	keyring *memberlist.Keyring // nil: no encryption
	stats   counters

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once

	meta  atomic.Pointer[[]byte] // what we say of ourselves, for memberlist
	count atomic.Int64           // members, for the queue

	inbox     chan message    // what came in, for run
	inboxSize atomic.Int64    // its bytes
	dirty     chan struct{}   // members changed, for run
	changed   chan struct{}   // our metadata changed, for advertise
	out       chan sending    // for the senders
	lines     chan event      // for writeLog
	twin      chan claim      // somebody has our id, for referee
	claims    *docket         // two have another node's id, which has proved itself
	unknown   *docket         // two have an id that nobody has proved
	retry     chan struct{}   // others have us at an old address, for joiner
	settled   chan struct{}   // closed by settle
	told      map[string]told // by seed; joiner's own
	failed    chan struct{}   // closed when err is set

	view atomic.Pointer[cluster.View]

	mu         sync.Mutex
	self       cluster.Member
	history    cluster.History // of our own tables
	own        *table          // the last of them
	peers      map[string]*peer
	byHash     map[uint64]string     // of peers
	lives      map[string]*statement // the newest of each node that was let in, for those that come back
	probes     map[nonce]chan *statement
	conflicts  map[string]*Conflict
	tableBytes int
	tableNews  bool          // a table came or went since the last look
	next       chan struct{} // closed at the next change of view or tables
	err        error
	left       bool
}

// A peer is what we know of another node. Guarded by mu.
type peer struct {
	cluster.Member
	node    memberlist.Node // where to send; a copy
	suspect time.Time       // of our own last probe that failed; zero: none since
	bye     uint64          // the incarnation that said goodbye, 0: none
	table   *table
	heard   uint64 // highest table version that an advert of this incarnation named
	want    *wanted
}

// Start begins to take part. It returns as soon as the node listens; joining
// goes on behind it, for ever, because all nodes of a cluster may be starting.
// What is wrong with the configuration or the address is an ErrConfig or the
// system's error; what is wrong with others is in the log and in Stats. Close
// ends it; ctx bounds Start alone.
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
	m := &Members{
		cfg: cfg, time: timing, log: cfg.Logger, self: cfg.Self,
		inbox: make(chan message, 1024), dirty: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		out: make(chan sending, 64), lines: make(chan event, logQueue), twin: make(chan claim, 4), claims: newDocket(cluster.MaxNodes), unknown: newDocket(maxUnknown),
		retry: make(chan struct{}, 1), settled: make(chan struct{}),
		failed: make(chan struct{}), next: make(chan struct{}),
		peers: map[string]*peer{}, byHash: map[uint64]string{}, told: map[string]told{},
		lives: map[string]*statement{}, probes: map[nonce]chan *statement{}, conflicts: map[string]*Conflict{},
	}
	m.self.ID, m.self.State, m.self.Since = cfg.NodeID, cluster.Alive, time.Now()
	m.self.Role = cmp.Or(m.self.Role, cluster.RoleServer)
	m.ctx, m.cancel = context.WithCancel(context.Background())
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
		if m.keyring, err = memberlist.NewKeyring(cfg.Keys[1:], cfg.Keys[0]); err != nil {
			return nil, fmt.Errorf("%w: gossip keys: %w", ErrConfig, err)
		}
		conf.Keyring = m.keyring
	}
	conf.DelegateProtocolMin, conf.DelegateProtocolMax, conf.DelegateProtocolVersion = 1, 1, 1
	calls := &callbacks{m}
	conf.Delegate, conf.Events, conf.Alive, conf.Merge, conf.Conflict, conf.Ping = calls, calls, calls, calls, calls, calls
	for _, p := range cfg.Allow {
		conf.CIDRsAllowed = append(conf.CIDRsAllowed, net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())})
	}
	if err := m.listen(ctx, conf); err != nil {
		m.cancel()
		return nil, err
	}
	m.wg.Add(6 + judges + senders)
	go m.run()
	go m.referee()
	go m.judgeAll(m.unknown)
	for range judges {
		go m.judgeAll(m.claims)
	}
	go m.advertise()
	go m.joiner()
	for range senders {
		go m.sender()
	}
	go m.writeLog()
	return m, nil
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
	// memberlist takes it for granted that it lets itself in.
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

// open makes UDP and TCP listen on one port. If any will do, the one that TCP
// got may be taken for UDP: then another try is made.
func open(ctx context.Context, ip netip.Addr, port int, logger *log.Logger) (*memberlist.NetTransport, error) {
	for try := 0; ; try++ {
		t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{ip.String()}, BindPort: port, Logger: logger})
		if err == nil || port != 0 || try == 10 || ctx.Err() != nil {
			return t, err
		}
	}
}

// View returns who is in the cluster, as far as this node knows. Never nil.
func (m *Members) View() *cluster.View { return m.view.Load() }

// Changed returns a channel that is closed at the next change of the view or
// of a table. Take it before looking at what may change.
func (m *Members) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.next
}

// Failed returns a channel that is closed when this node must not go on in
// the cluster: Err says why, a *StandDown. It may happen at any
// time: two nodes of one id that were cut off from each other meet when the cut heals.
func (m *Members) Failed() <-chan struct{} { return m.failed }

// Err returns why Failed is closed, nil if it is not.
func (m *Members) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *Members) failLocked(err error) {
	if m.err == nil {
		m.err = err
		close(m.failed)
	}
}

// SetSelf changes what this node says of itself: incarnation, endpoints, map.
// ID, state, gossip address and what Publish sets stay as they are. f is called
// under a lock: it must only assign. ErrMalformed of package cluster if the
// result is too large; then nothing has changed.
func (m *Members) SetSelf(f func(*cluster.Member)) error {
	m.mu.Lock()
	old := m.self
	next := old
	next.Endpoints = slices.Clone(old.Endpoints)
	f(&next)
	next.ID, next.Role, next.Gossip, next.State, next.Since = old.ID, old.Role, old.Gossip, old.State, old.Since
	next.TableVersion, next.TableDigest, next.Regions = old.TableVersion, old.TableDigest, old.Regions
	m.self = next
	var err error
	if next.Incarnation != old.Incarnation && m.own != nil {
		// The table is of another life of the store: forget it.
		m.self.TableVersion, m.self.TableDigest, m.self.Regions = 0, 0, 0
		m.own, m.history = nil, cluster.History{}
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

// advertise tells memberlist of changed metadata. That waits until the news
// is out, so changes in the meantime become one.
func (m *Members) advertise() {
	defer m.wg.Done()
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

// Leave says goodbye, so that others need not find out. It returns when the
// news has gone out as often as gossip repeats it, when nobody is left to hear
// it, or when ctx ends. The node still hears gossip; Close follows.
func (m *Members) Leave(ctx context.Context) error {
	m.mu.Lock()
	first := !m.left
	m.left = true
	bye := goodbye{m.cfg.NodeID, m.self.Incarnation}
	twin := errors.Is(m.err, ErrDuplicateID)
	m.mu.Unlock()
	if !first || m.ctx.Err() != nil {
		return nil
	}
	if twin {
		m.farewell(ctx, bye)
	} else {
		m.announceLeave()
	}
	// memberlist's own word goes into each packet before ours: once ours is
	// through, so is that.
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

// announceLeave makes memberlist say goodbye. It would wait for the news to go
// out, whatever happens meanwhile: we wait ourselves.
func (m *Members) announceLeave() {
	defer func() { _ = recover() }() // its way to say that it was shut down meanwhile
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

// Close ends everything: when it returns, no goroutine of ours is left, and
// memberlist's end by themselves within a probe's time. Without a Leave before
// it, others will call this node dead. The last View and tables stay readable.
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
	// IPv4 first: a wildcard of one family is the usual mistake.
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return ips[:min(len(ips), 16)], nil
}

var _ io.Writer = libraryLog{}

// local reports whether a text is our own gossip address. memberlist's own
// record of it is written anew with each change of our metadata.
func (m *Members) local(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.EqualFold(addr, m.self.Gossip)
}
