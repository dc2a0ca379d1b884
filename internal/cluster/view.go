package cluster

import (
	"cmp"
	"slices"
	"time"
)

// A View is the nodes of the cluster, as one node sees them. It is immutable:
// any goroutine may read it without a lock, for ever.
type View struct {
	// Version is the teller's own count of changes. It rises while the teller
	// runs: compare it only between views of one Self in one incarnation of it.
	Version uint64
	Cluster string   // the cluster's name
	Self    string   // the teller's node id; "" if it is no member
	Members []Member // by ID, strictly rising
}

// Member returns the member with this id, nil if there is none.
func (v *View) Member(id string) *Member {
	i, ok := slices.BinarySearchFunc(v.Members, id, func(m Member, id string) int { return cmp.Compare(m.ID, id) })
	if !ok {
		return nil
	}
	return &v.Members[i]
}

// Check holds a view to its bounds. ErrMalformed.
func (v *View) Check() error {
	if len(v.Members) > MaxNodes {
		return malformed("a view of %d members, at most %d", len(v.Members), MaxNodes)
	}
	if v.Cluster != "" {
		if err := CheckName(v.Cluster); err != nil {
			return err
		}
	}
	if v.Self != "" {
		if err := CheckNodeID(v.Self); err != nil {
			return err
		}
	}
	for i := range v.Members {
		m := &v.Members[i]
		if err := CheckNodeID(m.ID); err != nil {
			return err
		}
		if err := m.check(); err != nil {
			return err
		}
		switch {
		case i > 0 && v.Members[i-1].ID >= m.ID:
			return malformed("node %q stands behind %q in a view", m.ID, v.Members[i-1].ID)
		case m.State < Alive || m.State > Dead:
			return malformed("%v of node %q is unknown", m.State, m.ID)
		case m.Gossip != "" && !printable(m.Gossip, MaxAddr):
			return malformed("node %q gossips at %q", m.ID, clip(m.Gossip))
		}
	}
	return nil
}

const (
	viewFormat = 1
	// viewMember is the least that a member takes.
	viewMember = 1 + 1 + 1 + 1 + 8 + 1
)

// AppendView appends a view, for clients and for tools:
//
//	┌format┬ 0 ┬members┬version┬cluster┬self┐
//	└1     ┴1  ┴2      ┴8      ┴1+n    ┴1+n ┘
//	per member: ┌id ┬state┬since┬gossip┬metadata, see AppendMeta┐
//	            └1+n┴1    ┴8    ┴1+n   ┴1+n                     ┘
//
// since is in milliseconds since 1970, 0 for the zero time. The result has at
// most 460 KiB. It panics if v.Check would fail: a view is made by this
// program, from parts that were checked.
func AppendView(dst []byte, v *View) []byte {
	if err := v.Check(); err != nil {
		panic(err)
	}
	dst = append(dst, viewFormat, 0)
	dst = le.AppendUint16(dst, uint16(len(v.Members)))
	dst = le.AppendUint64(dst, v.Version)
	dst = appendText(appendText(dst, v.Cluster), v.Self)
	for i := range v.Members {
		m := &v.Members[i]
		dst = append(appendText(dst, m.ID), byte(m.State))
		dst = le.AppendUint64(dst, millis(m.Since))
		dst = appendText(dst, m.Gossip)
		at := len(dst)
		var err error
		if dst, err = AppendMeta(append(dst, 0), m); err != nil {
			panic(err) // above MaxMeta: no node can have sent such a member
		}
		dst[at] = byte(len(dst) - at - 1)
	}
	return dst
}

func millis(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, t.UnixMilli()))
}

// ParseView reads what AppendView wrote. ErrMalformed.
func ParseView(b []byte) (*View, error) {
	f := fields{b: b}
	f.format("a view", viewFormat)
	f.zero(1)
	count := int(f.u16())
	v := &View{Version: f.u64(), Cluster: f.text(), Self: f.text()}
	if count > MaxNodes {
		f.fail(malformed("a view of %d members, at most %d", count, MaxNodes))
	}
	if f.room(count, viewMember) && count > 0 {
		v.Members = make([]Member, 0, count)
	}
	for i := 0; i < count && f.err == nil; i++ {
		id, state, since, gossip := f.text(), State(f.u8()), f.u64(), f.text()
		meta := f.take(int(f.u8()))
		if f.err != nil {
			break
		}
		m, err := ParseMeta(meta)
		if err != nil {
			f.fail(err)
			break
		}
		if since > 1<<50 {
			f.fail(malformed("a time of %d ms since 1970", since))
			break
		}
		m.ID, m.State, m.Gossip = id, state, gossip
		if since != 0 {
			m.Since = time.UnixMilli(int64(since)).UTC()
		}
		v.Members = append(v.Members, m)
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	if err := v.Check(); err != nil {
		return nil, err
	}
	return v, nil
}
