package telemetry

import (
	"fmt"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/member"
	"github.com/rdmakv/rdmakv/internal/version"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// StatusOf is a node that serves, as its operator asks for it.
func StatusOf(src Sources) *wire.NodeStatus {
	sp, node := src.Main(), src.Node()
	now, build := time.Now(), version.Of("kvserver")
	view, retired, lag := sp.Store.View(), sp.Store.RetiredRegions(), sp.Store.Lag()
	st := &wire.NodeStatus{
		NodeProgram: wire.NodeProgram{Version: build.Version, Revision: build.Revision}, Incarnation: wire.Hex64(sp.Incarnation),
		Uptime: sp.Uptime.Seconds(), Time: now.UTC(), Ready: sp.Ready, Filled: sp.Filled, Sessions: sp.Opens,
		Map:     wire.MapStatus{State: wire.MapNone.String()},
		Shards:  wire.ShardStatus{Total: sp.Shards, List: []uint16{}},
		Lag:     wire.LagStatus{Unpublished: lag.Unpublished, NotDurable: lag.NotDurable, NotPublished: lag.NotPublished},
		Spaces:  len(src.Spaces()),
		Regions: wire.RegionStatus{Retired: len(retired), ViewVersion: view.Version},
		Memory:  wire.MemoryStatus{Limit: sp.MemoryLimit},
	}
	id := sp.Store.ID()
	st.Store = fmt.Sprintf("%x", id[:])
	if !sp.LeaseOff {
		st.LeaseMS = sp.Lease.Milliseconds()
	}
	st.BeatAgeMS = sp.BeatAge.Milliseconds()
	for _, r := range view.Regions {
		if r.Kind == layout.KindIndex {
			st.Regions.Index++
		} else {
			st.Regions.Items++
		}
		st.Regions.Bytes += r.Length
	}
	for _, l := range node.Logins {
		if l.Name != "" {
			st.Tenants++
		}
	}
	used, _ := sp.Regions.Bytes()
	st.Memory.Used = uint64(used)
	for _, p := range node.Ports {
		st.Fabrics = append(st.Fabrics, p.Device.Name()+" at "+p.Addr+p.State)
	}
	if t := src.RegionTable(); t != nil {
		st.Table = wire.TableStatus{Version: t.Version, Digest: wire.Hex64(t.Digest()), Regions: len(t.Regions)}
	}
	if node.Member == nil {
		st.Shards.Owned = sp.Shards
		for shard := range uint16(sp.Shards) {
			st.Shards.List = append(st.Shards.List, shard)
		}
		st.Endpoints = member.EndpointTexts(src.Endpoints())
		return st
	}
	node.Member.Status(st)
	st.Groups, st.Meta = node.Groups(), node.Meta()
	return st
}

// Status makes the document wire.AdminStatus of a node that serves: "" asks for the node,
// "table NODE" for the region table that it has of a node.
func Status(src Sources, what string) (any, error) {
	node, ok := strings.CutPrefix(what, "table ")
	switch {
	case what == "":
		return StatusOf(src), nil
	case !ok:
		return nil, base.Refuse(wire.StatusBadRequest, "%q: want nothing, or table NODE", what)
	}
	t := src.RegionTable()
	if m := src.Node().Member; m != nil {
		t = m.Members().Table(node)
	}
	if t == nil || t.Node != node {
		return nil, base.Refuse(wire.StatusNotFound, "this node has no region table of %q; of a node with more than %d regions that node alone has it", node, cluster.MaxGossip)
	}
	out := wire.TableAnswer{
		Node: t.Node, Incarnation: wire.Hex64(t.Incarnation), Version: t.Version, Digest: wire.Hex64(t.Digest()),
		Devices: t.Devices, Regions: make([]wire.TableRegion, 0, len(t.Regions)),
	}
	for _, r := range t.Regions {
		reg := wire.TableRegion{ID: r.ID, Kind: r.Kind, State: r.State.String(), Base: r.Base, Length: r.Length, Keys: []wire.TableKey{}}
		for _, k := range r.Keys {
			reg.Keys = append(reg.Keys, wire.TableKey{Device: k.Device, Addr: k.Addr, RKey: k.RKey})
		}
		out.Regions = append(out.Regions, reg)
	}
	return out, nil
}
