package telemetry

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/member"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store"
)

// Stats is the node in numbers, as the Stats request returns it in JSON.
// Counters run from Start; durations are nanoseconds, sizes bytes. Fields are
// only ever added.
type Stats struct {
	Name          string              `json:"name"`
	Space         string              `json:"space,omitempty"`    // whose numbers these are; of the node itself if empty
	Mode          string              `json:"mode"`               // durable or cache
	Cluster       *member.Stat        `json:"cluster,omitempty"`  // nil: a server that is alone
	Incarnation   uint64              `json:"incarnation,string"` // 64 bits do not fit a JSON number
	UptimeNanos   int64               `json:"uptime_nanos"`
	Ready         bool                `json:"ready"`
	Filled        bool                `json:"filled"`
	Fabric        string              `json:"fabric"` // of the first listener, as is Device
	Device        string              `json:"device"`
	Devices       []DeviceStat        `json:"devices"`
	Sessions      int                 `json:"sessions"` // of the node: in all its spaces
	SettingUp     int                 `json:"sessions_setting_up"`
	Credits       int                 `json:"credits"`
	Requests      map[string]OpStat   `json:"requests"` // by type; only those seen
	SessionsEnded map[string]uint64   `json:"sessions_ended"`
	BytesIn       int64               `json:"bytes_in"`
	BytesOut      int64               `json:"bytes_out"`
	LargeBytes    int64               `json:"rendezvous_bytes"`
	LeaseOff      bool                `json:"lease_off"` // debugging
	Beats         uint64              `json:"beats"`
	LateBeats     uint64              `json:"late_beats"`
	Goroutines    int                 `json:"goroutines"`
	Blocked       bool                `json:"handlers_blocked"`
	Memory        map[string]int64    `json:"memory"` // outside the Go heap, by purpose
	HugePages     string              `json:"huge_pages"`
	Registered    int64               `json:"registered_bytes"`      // for clients to READ
	Huge          int64               `json:"registered_huge_bytes"` // of that, in huge pages
	RKeys         memory.RotationStat `json:"rkeys"`                 // the last rotation
	RegionsGone   uint64              `json:"regions_given_back"`
	Asked         uint64              `json:"writes_that_asked_disk"`
	Slowed        uint64              `json:"puts_slowed"`      // because the log was nearly full
	Touches       uint64              `json:"touches_reported"` // keys read one-sidedly, as clients say
	Damages       uint64              `json:"damage_reported"`  // places, as clients say
	Polls         int                 `json:"watches_waiting"`
	Kept          *KeptStat           `json:"kept,omitempty"` // nil: without memory_keep
	Watch         store.WatchStats    `json:"watch"`
	Store         store.Stats         `json:"store"`
	Spaces        []SpaceStat         `json:"spaces,omitempty"` // of the node alone
}

// DeviceStat is one device that clients reach this node by.
type DeviceStat struct {
	Fabric   string   `json:"fabric"`
	Device   string   `json:"device"`
	Reason   string   `json:"reason"` // why it was chosen
	Listen   []string `json:"listen"` // its addresses
	Sessions int      `json:"sessions"`
	Shared   bool     `json:"shared_receives"`
	Lanes    int      `json:"lanes"`
	// Spins tells how its lanes have waited for requests, ResponderSpins how a
	// fabric in software has waited for READs.
	Spins          SpinStat `json:"spins"`
	ResponderSpins SpinStat `json:"responder_spins"`
	// What the session opened last runs over, as far as its fabric knows.
	Port     int    `json:"port,omitempty"`
	GID      string `json:"gid,omitempty"`
	GIDIndex int    `json:"gid_index,omitempty"`
	GIDType  string `json:"gid_type,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
}

// SpinStat counts the waits that polled before they slept.
type SpinStat struct {
	Got   uint64 `json:"got"`
	Vain  uint64 `json:"vain"`
	Nanos int64  `json:"nanos"` // spent polling
}

func spinStat(s wait.SpinStats) SpinStat {
	return SpinStat{Got: s.Got, Vain: s.Vain, Nanos: int64(s.Time)}
}

// OpStat counts requests of one type.
type OpStat struct {
	Count    uint64            `json:"count"`
	Failed   map[string]uint64 `json:"failed,omitempty"` // by status
	P50Nanos int64             `json:"p50_nanos"`        // upper bounds: powers of two
	P99Nanos int64             `json:"p99_nanos"`
}

// StatsOf reads the numbers of a space that serves, or of the node's own keys.
func StatsOf(src Sources, sp *Space) Stats {
	m, node := sp.Counters, src.Node()
	st := Stats{
		Name: sp.Node, Space: sp.Name, Mode: sp.Mode.String(), Incarnation: sp.Incarnation, UptimeNanos: int64(sp.Uptime),
		Ready: sp.Ready, Filled: sp.Filled, SettingUp: sp.Setups, Sessions: sp.Opens, Credits: sp.Credits,
		Requests: make(map[string]OpStat), SessionsEnded: make(map[string]uint64),
		BytesIn: m.BytesIn.Load(), BytesOut: m.BytesOut.Load(), LargeBytes: m.RendezvousBytes.Load(),
		LeaseOff: sp.LeaseOff, Beats: m.Beats.Load(), LateBeats: m.LateBeats.Load(),
		Goroutines: runtime.NumGoroutine(), Blocked: sp.Blocked, Memory: make(map[string]int64),
		HugePages: sp.HugePages, RKeys: sp.Rotation, RegionsGone: sp.Turnover.Gone.Load(),
		Asked: m.Asked.Load(), Slowed: m.Slowed.Load(), Touches: m.Touches.Load(), Damages: m.DamageReports.Load(),
		Polls: sp.Watches, Kept: sp.Kept, Watch: sp.Store.WatchStats(), Store: sp.Store.Stats(), Cluster: node.Member.Stat(),
	}
	st.Registered, st.Huge = sp.Regions.Bytes()
	for i := range sp.Devices {
		st.Devices = append(st.Devices, sp.Devices[i].stat())
	}
	first := node.Ports[0].Device
	st.Fabric, st.Device = first.Attr.Fabric, first.Dev.Name()
	for t := wire.TypeHello; t <= wire.MaxRequest; t++ {
		if op := opStat(m, t); op.Count > 0 {
			st.Requests[t.String()] = op
		}
	}
	for i := range m.Ends {
		if n := m.Ends[i].Load(); n > 0 {
			st.SessionsEnded[base.Cause(i).String()] = n
		}
	}
	if sp.Name != "" {
		st.Goroutines = 0 // the process is not the tenant's to look into
		return st
	}
	st.Spaces = Spaces(src)
	for _, u := range mem.Process().Usage() {
		st.Memory[u.Tag] = u.Bytes
	}
	return st
}

// stat is the numbers of one device.
func (d *Device) stat() DeviceStat {
	st := DeviceStat{
		Fabric: d.Attr.Fabric, Device: d.Dev.Name(), Reason: d.Attr.Reason, Listen: d.Listen,
		Sessions: d.Sessions, Shared: d.Shared, Lanes: d.Lanes, Spins: spinStat(d.Spins), ResponderSpins: spinStat(d.Responder),
	}
	if p := d.LastPath; p != nil {
		st.Port, st.GID, st.GIDIndex, st.GIDType, st.MTU = p.Port, p.GID, p.GIDIndex, p.GIDType, p.MTU
	}
	return st
}

func opStat(m *base.Counters, t wire.Type) OpStat {
	var op OpStat
	for st := range m.Ops[t] {
		n := m.Ops[t][st].Load()
		op.Count += n
		if n > 0 && wire.Status(st) != wire.StatusOK {
			if op.Failed == nil {
				op.Failed = make(map[string]uint64)
			}
			op.Failed[wire.Status(st).String()] = n
		}
	}
	op.P50Nanos, op.P99Nanos = m.Latency[t].Quantile(0.5), m.Latency[t].Quantile(0.99)
	return op
}

// SpaceStat is one space as the node's operator sees it.
type SpaceStat struct {
	Name     string `json:"name"`
	State    string `json:"state"` // serving, filling, fenced, failed, closing
	Detail   string `json:"detail,omitempty"`
	Sessions int    `json:"sessions"`
	Limit    uint64 `json:"memory_limit"`
	Used     int64  `json:"registered_bytes"`
}

// Spaces describes the spaces of a node, by name.
func Spaces(src Sources) []SpaceStat {
	var list []SpaceStat
	for _, sp := range src.Spaces() {
		list = append(list, sp.stat())
	}
	for name, err := range src.Failed() {
		list = append(list, SpaceStat{Name: name, State: "failed", Detail: err.Error()})
	}
	slices.SortFunc(list, func(a, b SpaceStat) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (sp *Space) stat() SpaceStat {
	st := SpaceStat{Name: sp.Name, State: "serving", Sessions: sp.Opens, Limit: sp.MemoryLimit}
	switch {
	case sp.Err != nil:
		st.State, st.Detail = "fenced", sp.Err.Error()
	case sp.Closing:
		st.State = "closing"
	case !sp.Filled:
		st.State = "filling"
	}
	st.Used, _ = sp.Regions.Bytes()
	return st
}
