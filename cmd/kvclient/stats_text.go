package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/doctor"
)

// serverStats are the counters of a node that the table of stats shows; there are
// many more, which --all and -o json have.
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
	} `json:"store"`
	Requests map[string]struct {
		Count uint64 `json:"count"`
		P50   int64  `json:"p50_nanos"`
		P99   int64  `json:"p99_nanos"`
	} `json:"requests"`
}

// statsText is the counters as tables: nodes, then what they were asked, then what
// this client has counted.
func statsText(st client.Stats) string {
	nodes := []string{"node\tup\tsessions\tkeys\twrites\tevicted\tfrom disk\tmemory\tregistered\tdisk free\treceived\tsent\tlate beats\n"}
	requests := []string{"node\trequest\tcount\tp50\tp99\n"}
	add := func(id string, text []byte) {
		var s serverStats
		if json.Unmarshal(text, &s) != nil {
			return
		}
		nodes = append(nodes, lineOf(nodeName(id), (time.Duration(s.Uptime)/time.Second*time.Second).String(), thousands(int64(s.Sessions)),
			thousands(s.Store.Keys), thousands(int64(s.Store.Published)), thousands(int64(s.Store.Evicted)), thousands(int64(s.Store.FromDisk)),
			byteCount(s.Store.MemoryUsed)+" of "+byteCount(s.Store.MemoryLimit), byteCount(s.Registered), byteCount(s.Store.DiskFree),
			byteCount(s.BytesIn), byteCount(s.BytesOut), thousands(int64(s.LateBeats))))
		names := slices.SortedFunc(maps.Keys(s.Requests), func(a, b string) int {
			return cmp.Or(cmp.Compare(s.Requests[b].Count, s.Requests[a].Count), cmp.Compare(a, b))
		})
		for _, name := range names {
			r := s.Requests[name]
			requests = append(requests, lineOf(nodeName(id), doctor.OneLine(name), thousands(int64(r.Count)),
				shortDuration(time.Duration(r.P50)), shortDuration(time.Duration(r.P99))))
		}
	}
	if st.Nodes == nil {
		add(st.Session.Node, st.Server)
	}
	for _, id := range slices.Sorted(maps.Keys(st.Nodes)) {
		add(id, st.Nodes[id].Server)
	}
	text := table(nodes) + "\n" + table(requests)
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
	return text + "\nthis client" + how + " (counters that are not 0)\n" + table(mine)
}
