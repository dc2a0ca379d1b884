package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// Where results go, below options.root.
const (
	resultsFile = "bench/results/scale.json"
	pageFile    = "docs/scale.md"
)

// results are what bench/results/scale.json holds. Sizes are bytes, times seconds, if
// the name says nothing else. Each part is of the run that measured it last.
type results struct {
	Machine  report.Machine  `json:"machine"`
	Keys     []keysResult    `json:"keys"`
	Sessions []sessionResult `json:"sessions"`
	Members  []membersResult `json:"members"`
}

// keysResult is one store of so many keys of 16 B with values of 64 B.
type keysResult struct {
	Measured time.Time `json:"measured"`
	Keys     int       `json:"keys"`

	MemoryLimit uint64 `json:"memory_limit"`
	MemoryUsed  uint64 `json:"memory_used"` // of the registered memory; items and index are of it
	Items       uint64 `json:"items"`
	Index       uint64 `json:"index"`
	Regions     int    `json:"regions"`
	Registered  uint64 `json:"registered"` // what the regions take
	Huge        uint64 `json:"huge"`       // of that, in huge pages
	Resident    uint64 `json:"resident"`   // VmRSS, at rest after the load
	Empty       uint64 `json:"empty"`      // VmRSS before it

	InMemory uint64 `json:"in_memory"` // keys, at rest after the load
	Slotless uint64 `json:"slotless"`  // keys without a slot in the index then, at most

	Base uint64 `json:"base"` // on the disk
	Log  uint64 `json:"log"`

	Load     float64 `json:"load_seconds"`
	FirstGet float64 `json:"first_get_seconds"` // since the start of the process, after a clean stop
	Full     float64 `json:"full_seconds"`      // until every key is in memory

	Gets []getsResult `json:"gets"`
}

// getsResult is gets of one caller, by a Zipfian choice of 0.99.
type getsResult struct {
	Fabric   string  `json:"fabric"`
	Ops      uint64  `json:"ops"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	Places   int     `json:"places"`       // in the client's location cache, at the end
	Bytes    int     `json:"places_bytes"` // that it takes
	CacheHit float64 `json:"cache_hit"`    // share of the gets that began with a remembered place
}

// sessionResult is one node with so many sessions. The server's figures are without those
// of the same server with none.
type sessionResult struct {
	Measured time.Time `json:"measured"`
	Fabric   string    `json:"fabric"`
	Sessions int       `json:"sessions"`
	Server   process   `json:"server"`
	// Buffers are what the server holds outside the Go heap for messages.
	Receives int64 `json:"receives"`
	Replies  int64 `json:"replies"`
	Credits  int   `json:"credits"`
	// Client is all clients together; Workers is by how many processes they are.
	Client  process `json:"client"`
	Workers int     `json:"workers"`
	Open    float64 `json:"open_seconds"` // until all sessions are open

	Quiet idle `json:"quiet"` // no get for longer than LeaseKeep
	Kept  idle `json:"kept"`  // a get not long ago
}

// process is what processes take.
type process struct {
	Resident   int64 `json:"resident"`
	Files      int   `json:"files"` // descriptors
	Goroutines int   `json:"goroutines"`
}

func (p process) less(q process) process {
	return process{p.Resident - q.Resident, p.Files - q.Files, p.Goroutines - q.Goroutines}
}

// idle is a while in which no session was used by its program.
type idle struct {
	ServerCPU float64 `json:"server_cpu"` // processors that were busy
	ClientCPU float64 `json:"client_cpu"`
	Reads     float64 `json:"reads_per_session"` // a second
	Renewals  float64 `json:"renewals_per_session"`
}

// membersResult is a cluster of so many members, without stores.
type membersResult struct {
	Measured time.Time `json:"measured"`
	Members  int       `json:"members"`
	Regions  int       `json:"regions"` // of each member's table
	Meta     int       `json:"meta"`    // metadata of a member
	Table    int       `json:"table"`   // a member's table, encoded
	View     int       `json:"view"`    // the view as clients get it

	Joined float64 `json:"joined_seconds"` // until each knows all
	Watch  float64 `json:"watch_seconds"`

	// Sent by one member, on average, in Watch seconds of idleness.
	Packets     float64 `json:"packets_per_second"`
	PacketBytes float64 `json:"packet_bytes_per_second"`
	Streams     float64 `json:"streams"` // that it opened
	// StreamBytes are those that both ends of a stream sent, on average.
	StreamBytes float64 `json:"bytes_per_stream"`
	CPU         float64 `json:"cpu"` // processors, by one member

	Table50, TableLast float64 // seconds until half of the members have a new table, and all
	Dead50, DeadLast   float64 // the same of a member that is gone
	ChangeBytes        float64 `json:"change_bytes"` // sent by one member on average while a table spread, idle ones taken off
}

// readResults reads what was measured before; nothing, if there is no file.
func readResults(path string) (*results, error) {
	res := new(results)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return res, nil
	}
	if err == nil {
		err = json.Unmarshal(text, res)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return res, nil
}

func writeResults(path string, res *results) error {
	return report.WriteFile(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(res)
	})
}

// writePage writes the tables into the page, which has to be there.
func writePage(root string, res *results) error {
	path := filepath.Join(root, pageFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if text, err = report.Between(text, t.begin(), t.end(), func(w io.Writer) error { return t.write(w, res) }); err != nil {
			return fmt.Errorf("%s: table %s: %w", path, t.name, err)
		}
	}
	return report.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
