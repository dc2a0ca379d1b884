package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/servers"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/membership"
)

// regionsEach is how many regions the table of a member has: those of a store of 1 GiB
// that is full, eight of items and two of the index.
const regionsEach = 10

// spreads is how often a change of a table is measured.
const spreads = 5

// patience bounds every wait for news: at 300 members a push/pull is two minutes away.
const patience = 5 * time.Minute

// A group is members in this process.
type group struct {
	sent sent
	all  []*membership.Members
}

func (g *group) close() {
	for _, m := range g.all {
		_ = m.Close()
	}
}

// measureMembers has so many members find each other, and lets them be; then one changes
// its table, and one goes without a word.
func measureMembers(ctx context.Context, o options, n int) (r membersResult, err error) {
	r = membersResult{Measured: time.Now().UTC(), Members: n, Regions: regionsEach}
	g := new(group)
	defer g.close()
	begun := time.Now()
	if err := g.start(ctx, n); err != nil {
		return r, err
	}
	if err := g.await(ctx, g.all, func(m *membership.Members) bool {
		return living(m.View()) == n && m.Stats().Tables == n-1
	}); err != nil {
		return r, fmt.Errorf("not all members know all: %w", err)
	}
	r.Joined = time.Since(begun).Seconds()
	o.say("%d members: each knows all after %.1f s", n, r.Joined)
	r.sizes(g)

	// A member that has just come does three push/pulls by itself, which are no idle ones.
	if err := sleep(ctx, min(settled, 4*o.turn)); err != nil {
		return r, err
	}
	if err := r.idle(ctx, o, g); err != nil {
		return r, err
	}
	o.say("%d members: each sends %.2f packets/s, %.0f B/s, and %.0f B in each of %.2f streams in %.0f s", n, r.Packets, r.PacketBytes, r.StreamBytes, r.Streams, r.Watch)
	if err := r.change(ctx, g); err != nil {
		return r, err
	}
	if err := r.death(ctx, g); err != nil {
		return r, err
	}
	o.say("%d members: a table is at half of them after %.3f s and at all after %.3f s; a member that is gone is known to be after %.1f and %.1f s",
		n, r.Table50, r.TableLast, r.Dead50, r.DeadLast)
	return r, nil
}

// settled is how long the first push/pulls of a new member take (membership/join.go:
// mingleRounds of up to one and a half times its rejoin interval), and a little more.
const settled = 24 * time.Second

// start makes members, each of which joins by the first one.
func (g *group) start(ctx context.Context, n int) error {
	seed := ""
	for i := range n {
		t, err := listen(&g.sent)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("node-%04d", i)
		incarnation := cluster.Hash(id)
		cfg := membership.Config{
			NodeID: id, Cluster: "scale", Transport: t, Profile: membership.LAN,
			Keys: [][]byte{[]byte("scale scale scale scale scale 32")}, ProofKey: []byte("the nodes know it"),
			Self: cluster.Member{Incarnation: incarnation, Endpoints: []cluster.Endpoint{
				{Fabric: "verbs", Addr: "10.0.0.1:7400"}, {Fabric: "iwarp", Addr: "10.0.0.1:7400"}}},
			Life:  membership.Life{Store: [16]byte{byte(i), byte(i >> 8)}, Incarnation: incarnation, Epoch: 1, Began: uint64(time.Now().UnixMicro())},
			Table: tableOf(0),
		}
		if i > 0 {
			cfg.Join = []string{seed}
		} else {
			seed = t.addr()
		}
		m, err := membership.Start(ctx, cfg)
		if err != nil {
			return errors.Join(err, t.Shutdown())
		}
		g.all = append(g.all, m)
	}
	return nil
}

// tableOf is a table whose rkeys are of a generation.
func tableOf(generation uint32) *cluster.Table {
	t := &cluster.Table{Devices: []string{"mlx5_0"}}
	for i := range uint32(regionsEach) {
		t.Regions = append(t.Regions, cluster.Region{ID: i, Kind: 2, State: cluster.Serving, Base: uint64(i) << 27, Length: 1 << 27,
			Keys: []cluster.RemoteKey{{RKey: generation<<16 | i, Addr: 0x7f0000000000 + uint64(i)<<27}}})
	}
	return t
}

func living(v *cluster.View) (n int) {
	for _, m := range v.Members {
		if m.State == cluster.Alive || m.State == cluster.Suspect {
			n++
		}
	}
	return n
}

// times waits until f is true at each of the members, and returns how many seconds that
// took at each, in order. It looks after each change of a view, and every few
// milliseconds, because a table can come without one.
func (g *group) times(ctx context.Context, members []*membership.Members, f func(*membership.Members) bool) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	var took []float64
	waiting := slices.Clone(members)
	for len(waiting) > 0 {
		waiting = slices.DeleteFunc(waiting, func(m *membership.Members) bool {
			there := f(m)
			if there {
				took = append(took, time.Since(begun).Seconds())
			}
			return there
		})
		if len(waiting) == 0 {
			break
		}
		if err := sleep(ctx, 2*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%d of %d have not heard: %w", len(waiting), len(members), err)
		}
	}
	return took, nil
}

func (g *group) await(ctx context.Context, members []*membership.Members, f func(*membership.Members) bool) error {
	_, err := g.times(ctx, members, f)
	return err
}

// sizes are those of what travels.
func (r *membersResult) sizes(g *group) {
	view := g.all[0].View()
	r.View = len(cluster.AppendView(nil, view))
	self := *view.Member(view.Self)
	if meta, err := cluster.AppendMeta(nil, &self); err == nil {
		r.Meta = len(meta)
	}
	r.Table = len(cluster.AppendTable(nil, g.all[0].Table(view.Self)))
}

// idle counts what members send while there is no news.
func (r *membersResult) idle(ctx context.Context, o options, g *group) error {
	window := o.watch
	if window == 0 {
		window = pushPull(r.Members)
	}
	cpu, err := servers.CPU(os.Getpid())
	if err != nil {
		return err
	}
	before, begun := g.sent.tally(), time.Now()
	if err := sleep(ctx, window); err != nil {
		return err
	}
	t := g.sent.tally().less(before)
	r.Watch = time.Since(begun).Seconds()
	cpu2, err := servers.CPU(os.Getpid())
	if err != nil {
		return err
	}
	n := float64(r.Members)
	r.CPU = (cpu2 - cpu).Seconds() / r.Watch / n
	r.Packets, r.PacketBytes = float64(t.packets)/r.Watch/n, float64(t.packetBytes)/r.Watch/n
	r.Streams = float64(t.streams) / n
	if t.streams > 0 {
		r.StreamBytes = float64(t.streamBytes) / float64(t.streams)
	}
	return nil
}

// change has one member publish new rkeys, a few times.
func (r *membersResult) change(ctx context.Context, g *group) error {
	from, id := g.all[0], g.all[0].View().Self
	var half, last []float64
	before, begun := g.sent.tally(), time.Now()
	for i := range uint32(spreads) {
		if err := from.Publish(tableOf(i + 1)); err != nil {
			return err
		}
		version := from.Table(id).Version
		took, err := g.times(ctx, g.all[1:], func(m *membership.Members) bool {
			t := m.Table(id)
			return t != nil && t.Version >= version
		})
		if err != nil {
			return fmt.Errorf("a new table: %w", err)
		}
		half, last = append(half, took[len(took)/2]), append(last, took[len(took)-1])
		if err := sleep(ctx, 2*time.Second); err != nil { // the news dies down
			return err
		}
	}
	slices.Sort(half)
	slices.Sort(last)
	r.Table50, r.TableLast = half[len(half)/2], last[len(last)/2]
	took := time.Since(begun).Seconds()
	t := g.sent.tally().less(before)
	r.ChangeBytes = (float64(t.packetBytes)/float64(r.Members) - r.PacketBytes*took) / spreads
	return nil
}

// death has the last member go without a word.
func (r *membersResult) death(ctx context.Context, g *group) error {
	gone := g.all[len(g.all)-1]
	id := gone.View().Self
	go gone.Close() // which waits for its own goroutines; close does so again
	took, err := g.times(ctx, g.all[:len(g.all)-1], func(m *membership.Members) bool {
		p := m.View().Member(id)
		return p == nil || p.State == cluster.Dead
	})
	if err != nil {
		return fmt.Errorf("a member that is gone: %w", err)
	}
	r.Dead50, r.DeadLast = took[len(took)/2], took[len(took)-1]
	return nil
}
