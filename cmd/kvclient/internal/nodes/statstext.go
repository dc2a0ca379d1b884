package nodes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// serverStats are the counters of a node that the table of stats shows, by their
// names in the node's JSON; there are many more, which --all and -o json have.
// Sizes are in bytes, times in nanoseconds.
type serverStats struct {
	Sessions   int    `json:"sessions"`
	Uptime     int64  `json:"uptime_nanos"`
	LateBeats  uint64 `json:"late_beats"`
	BytesIn    int64  `json:"bytes_in"`
	BytesOut   int64  `json:"bytes_out"`
	Registered int64  `json:"registered_bytes"`
	Store      struct {
		Keys        int64  `json:"keys"`
		MemoryUsed  int64  `json:"memory_used"`
		MemoryLimit int64  `json:"memory_limit"`
		DiskFree    int64  `json:"disk_free"`
		Published   uint64 `json:"published"`
		Evicted     uint64 `json:"evicted"`
		FromDisk    uint64 `json:"from_disk"`
		Log         struct {
			Behind int64 `json:"behind"`
			Limit  int64 `json:"limit"`
		} `json:"log"`
	} `json:"store"`
	Requests map[string]struct {
		Count uint64 `json:"count"`
		P50   int64  `json:"p50_nanos"`
		P99   int64  `json:"p99_nanos"`
	} `json:"requests"`
}

// statsText is the counters as tables: nodes, then the requests that they have
// served, then what this client has counted. A node of another release may lack a
// counter, which then reads 0, or have more, which only --all shows.
func statsText(st admin.Stats) string {
	nodes := []string{"node\tup\tsessions\tkeys\twrites\tevicted\tfrom disk\tmemory\tregistered\tdisk free\tlog\treceived\tsent\tlate beats\n"}
	requests := []string{"node\trequest\tcount\tp50\tp99\n"}
	add := func(id string, text []byte) {
		var s serverStats
		if json.Unmarshal(text, &s) != nil {
			return
		}
		nodes = append(nodes, lineOf(nodeName(id), (time.Duration(s.Uptime)/time.Second*time.Second).String(), cli.Thousands(int64(s.Sessions)),
			cli.Thousands(s.Store.Keys), cli.Thousands(int64(s.Store.Published)), cli.Thousands(int64(s.Store.Evicted)), cli.Thousands(int64(s.Store.FromDisk)),
			cli.Bytes(s.Store.MemoryUsed)+" of "+cli.Bytes(s.Store.MemoryLimit), cli.Bytes(s.Registered), cli.Bytes(s.Store.DiskFree),
			cli.Bytes(s.Store.Log.Behind)+" of "+cli.Bytes(s.Store.Log.Limit),
			cli.Bytes(s.BytesIn), cli.Bytes(s.BytesOut), cli.Thousands(int64(s.LateBeats))))
		// The most frequent requests stand first, equal counts by name, so that two
		// calls can be compared.
		names := slices.SortedFunc(maps.Keys(s.Requests), func(a, b string) int {
			return cmp.Or(cmp.Compare(s.Requests[b].Count, s.Requests[a].Count), cmp.Compare(a, b))
		})
		for _, name := range names {
			r := s.Requests[name]
			requests = append(requests, lineOf(nodeName(id), doctor.OneLine(name), cli.Thousands(int64(r.Count)),
				cli.Duration(time.Duration(r.P50)), cli.Duration(time.Duration(r.P99))))
		}
	}
	// Nodes is nil where there is one server, whose counters stand at the top.
	if st.Nodes == nil {
		add(st.Session.Node, st.Server)
	}
	for _, id := range slices.Sorted(maps.Keys(st.Nodes)) {
		add(id, st.Nodes[id].Server)
	}
	text := cli.Table(nodes) + "\n" + cli.Table(requests)
	// Most counters of a client that has made one call are 0, and in the way.
	var mine []string
	for line := range strings.Lines(flatten(st.Client)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); strings.TrimSpace(value) != "0" {
			mine = append(mine, lineOf(name, strings.TrimSpace(value)))
		}
	}
	how := ""
	if s := st.Session; s.Fabric != "" {
		how = fmt.Sprintf(", by %s/%s", s.Fabric, s.Device)
	}
	return text + "\nthis client" + how + " (counters that are not 0)\n" + cli.Table(mine)
}
