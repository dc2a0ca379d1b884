package server

import (
	"encoding/json"
	"runtime"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store"
)

// Stats is the node in numbers, as the Stats request returns it in JSON.
// Counters run from Start; durations are nanoseconds, sizes bytes. Fields are
// only ever added.
type Stats struct {
	Name          string            `json:"name"`
	Space         string            `json:"space,omitempty"`    // whose numbers these are; of the node itself if empty
	Mode          string            `json:"mode"`               // durable or cache
	Cluster       *ClusterStat      `json:"cluster,omitempty"`  // nil: a server that is alone
	Incarnation   uint64            `json:"incarnation,string"` // 64 bits do not fit a JSON number
	UptimeNanos   int64             `json:"uptime_nanos"`
	Ready         bool              `json:"ready"`
	Filled        bool              `json:"filled"`
	Fabric        string            `json:"fabric"` // of the first listener, as is Device
	Device        string            `json:"device"`
	Devices       []DeviceStat      `json:"devices"`
	Sessions      int               `json:"sessions"` // of the node: in all its spaces
	SettingUp     int               `json:"sessions_setting_up"`
	Credits       int               `json:"credits"`
	Requests      map[string]OpStat `json:"requests"` // by type; only those seen
	SessionsEnded map[string]uint64 `json:"sessions_ended"`
	BytesIn       int64             `json:"bytes_in"`
	BytesOut      int64             `json:"bytes_out"`
	LargeBytes    int64             `json:"rendezvous_bytes"`
	LeaseOff      bool              `json:"lease_off"` // debugging
	Beats         uint64            `json:"beats"`
	LateBeats     uint64            `json:"late_beats"`
	Goroutines    int               `json:"goroutines"`
	Blocked       bool              `json:"handlers_blocked"`
	Memory        map[string]int64  `json:"memory"` // outside the Go heap, by purpose
	HugePages     string            `json:"huge_pages"`
	Registered    int64             `json:"registered_bytes"`      // for clients to READ
	Huge          int64             `json:"registered_huge_bytes"` // of that, in huge pages
	RKeys         RotationStat      `json:"rkeys"`                 // the last rotation
	RegionsGone   uint64            `json:"regions_given_back"`
	Asked         uint64            `json:"writes_that_asked_disk"`
	Touches       uint64            `json:"touches_reported"` // keys read one-sidedly, as clients say
	Damages       uint64            `json:"damage_reported"`  // places, as clients say
	Polls         int               `json:"watches_waiting"`
	Watch         store.WatchStats  `json:"watch"`
	Store         store.Stats       `json:"store"`
	Spaces        []SpaceStat       `json:"spaces,omitempty"` // of the node alone
}

// ClusterStat is a node's part in its cluster.
type ClusterStat struct {
	Node       string         `json:"node"`
	Cluster    string         `json:"cluster"`
	Map        string         `json:"map"` // none, prepared, committed
	MapVersion uint64         `json:"map_version"`
	MapDigest  string         `json:"map_digest"`
	Shards     int            `json:"shards_owned"`
	Members    map[string]int `json:"members"` // by state, as gossip sees them
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

func spinStat(s rdma.SpinStats) SpinStat {
	return SpinStat{Got: s.Got, Vain: s.Vain, Nanos: int64(s.Time)}
}

// OpStat counts requests of one type.
type OpStat struct {
	Count    uint64            `json:"count"`
	Failed   map[string]uint64 `json:"failed,omitempty"` // by status
	P50Nanos int64             `json:"p50_nanos"`        // upper bounds: powers of two
	P99Nanos int64             `json:"p99_nanos"`
}

// Stats reads the numbers. It may be called from Start's return to Shutdown.
func (srv *Server) Stats() (Stats, error) {
	if !srv.serving.Load() {
		return Stats{}, errNotServing
	}
	m := srv.met
	st := Stats{
		Name: srv.cfg.Name, Space: srv.space, Mode: srv.cfg.Mode.String(), Incarnation: srv.incarnation, UptimeNanos: srv.now(),
		Ready: srv.Ready(), Filled: srv.Filled(),
		Requests: make(map[string]OpStat), SessionsEnded: make(map[string]uint64),
		BytesIn: m.bytesIn.Load(), BytesOut: m.bytesOut.Load(), LargeBytes: m.rendezvousBytes.Load(),
		Beats: m.beats.Load(), LateBeats: m.lateBeats.Load(),
		Goroutines: runtime.NumGoroutine(), Memory: make(map[string]int64),
		Store: srv.store.Stats(),
	}
	st.Asked, st.Touches, st.Damages = m.asked.Load(), m.touches.Load(), m.damageReports.Load()
	st.Polls, st.Watch = srv.watches.waiting(), srv.store.WatchStats()
	st.LeaseOff = srv.cfg.LeaseOff
	st.Cluster = srv.root.cluster.stat()
	st.HugePages = srv.cfg.HugePages.String()
	st.Registered, st.Huge = srv.regions.bytes()
	st.RKeys, st.RegionsGone = srv.rotationStat(), srv.regions.gone.Load()
	for _, d := range srv.deviceList() {
		st.Devices = append(st.Devices, d.stat())
	}
	first := srv.root.portList()[0].dev
	st.Fabric, st.Device = first.attr.Fabric, first.dev.Name()
	st.Blocked, _ = srv.gate.waiting()
	srv.sessMu.Lock()
	st.Sessions, st.SettingUp = srv.opens, len(srv.setups.places)
	srv.sessMu.Unlock()
	for _, s := range srv.sessionList() {
		st.Credits += int(max(0, s.allowed.Load()))
	}
	for t := wire.TypeHello; t <= wire.MaxRequest; t++ {
		if op := m.opStat(t); op.Count > 0 {
			st.Requests[t.String()] = op
		}
	}
	for i := range m.ends {
		if n := m.ends[i].Load(); n > 0 {
			st.SessionsEnded[cause(i).String()] = n
		}
	}
	if srv.root != srv {
		st.Goroutines = 0 // the process is not the tenant's to look into
		return st, nil
	}
	st.Spaces = srv.Spaces()
	for _, u := range memory.Process().Usage() {
		st.Memory[u.Tag] = u.Bytes
	}
	return st, nil
}

// stat reads the numbers of one device.
func (d *device) stat() DeviceStat {
	st := DeviceStat{
		Fabric: d.attr.Fabric, Device: d.dev.Name(), Reason: d.attr.Reason,
		Sessions: int(d.opens.Load()), Shared: d.shared, Lanes: len(d.lanes),
	}
	if p := d.lastPath.Load(); p != nil {
		st.Port, st.GID, st.GIDIndex, st.GIDType, st.MTU = p.Port, p.GID, p.GIDIndex, p.GIDType, p.MTU
	}
	lanes, responder := d.spins()
	st.Spins, st.ResponderSpins = spinStat(lanes), spinStat(responder)
	for _, p := range d.srv.root.portList() {
		if p.dev.dev == d.dev {
			st.Listen = append(st.Listen, p.ln.Addr().String())
		}
	}
	return st
}

func (m *metrics) opStat(t wire.Type) OpStat {
	var op OpStat
	for st := range m.ops[t] {
		n := m.ops[t][st].Load()
		op.Count += n
		if n > 0 && wire.Status(st) != wire.StatusOK {
			if op.Failed == nil {
				op.Failed = make(map[string]uint64)
			}
			op.Failed[wire.Status(st).String()] = n
		}
	}
	op.P50Nanos, op.P99Nanos = m.latency[t].quantile(0.5), m.latency[t].quantile(0.99)
	return op
}

// statsJSON is the text that the Stats request of a login pages through. The
// spaces are those of tenants: who they are is for administrators to see.
func (srv *Server) statsJSON(l *login) ([]byte, error) {
	st, err := srv.Stats()
	if err != nil {
		return nil, err
	}
	if !l.admin {
		st.Spaces = nil
	}
	return json.Marshal(st)
}
