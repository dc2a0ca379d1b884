package main

import (
	"fmt"
	"io"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A table stands in docs/scale.md between two lines that name it.
type table struct {
	name  string
	write func(w io.Writer, res *results) error
}

func (t table) begin() string {
	return fmt.Sprintf("<!-- Table %s is written by bench/scale, by `make scale`: change that, not this. -->\n", t.name)
}
func (t table) end() string { return "<!-- The end of table " + t.name + ". -->\n" }

var tables = []table{
	{"memory", memoryTable}, {"keys", keysTable}, {"cards", cardsTable}, {"gets", getsTable},
	{"sessions", sessionsTable}, {"idle", idleTable}, {"clients", clientsTable},
	{"gossip", gossipTable}, {"news", newsTable}, {"constants", constantsTable},
}

// lines writes a table; the first error counts.
type lines struct {
	w   io.Writer
	err error
}

func (l *lines) say(format string, args ...any) {
	if l.err == nil {
		_, l.err = fmt.Fprintf(l.w, format+"\n", args...)
	}
}

// when tells of the machine and the days of a part, for what is above a table.
func (l *lines) when(res *results, measured time.Time) {
	if !measured.IsZero() {
		l.say("Measured on %s, %d cores%s, %.0f GiB.\n", measured.Format("2 Jan 2006"), res.Machine.Cores, virtual(res), float64(res.Machine.MemoryBytes)/(1<<30))
	}
}

func virtual(res *results) string {
	if res.Machine.Virtual {
		return " of a virtual machine"
	}
	return ""
}

// count writes 100 k, 1 M.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n >= 10_000 && n%1000 == 0:
		return fmt.Sprintf("%d k", n/1000)
	}
	return fmt.Sprint(n)
}

// size writes bytes with a unit.
func size(b float64) string {
	for _, u := range []struct {
		unit string
		n    float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b >= u.n {
			return fmt.Sprintf("%.3g %s", b/u.n, u.unit)
		}
	}
	return fmt.Sprintf("%.0f B", b)
}

// rate writes bytes a second, as networks count them.
func rate(b float64) string {
	switch {
	case b >= 1e6:
		return fmt.Sprintf("%.3g MB/s", b/1e6)
	case b >= 1e4:
		return fmt.Sprintf("%.3g kB/s", b/1e3)
	}
	return fmt.Sprintf("%.0f B/s", b)
}

func memoryTable(w io.Writer, res *results) error {
	l := &lines{w: w}
	if len(res.Keys) > 0 {
		l.when(res, res.Keys[0].Measured)
	}
	l.say("| keys | items, B a key | index, B a key | beyond the key's 80 B | registered | resident, less an empty server | resident, B a key | not in memory |")
	l.say("|---|---|---|---|---|---|---|---|")
	l.say("| computed | %d | | | | | | |", itemBytes())
	for _, r := range res.Keys {
		n := float64(r.Keys)
		l.say("| %s | %.1f | %.1f | %.1f | %s | %s | %.0f | %d |", count(r.Keys), float64(r.Items)/n, float64(r.Index)/n, float64(r.MemoryUsed)/n-keyBytes-valueBytes,
			size(float64(r.Registered)), size(float64(r.Resident)-float64(r.Empty)), (float64(r.Resident)-float64(r.Empty))/n, uint64(r.Keys)-r.InMemory)
	}
	return l.err
}

func keysTable(w io.Writer, res *results) error {
	l := &lines{w: w}
	l.say("| keys | loaded in | base on the disk, B a key | log | restart: first get | restart: all in memory |")
	l.say("|---|---|---|---|---|---|")
	for _, r := range res.Keys {
		n := float64(r.Keys)
		l.say("| %s | %.1f s, %.0f k/s | %.0f | %s | %.2f s | %.1f s, %.2g M/s |", count(r.Keys), r.Load, n/r.Load/1000, float64(r.Base)/n, size(float64(r.Log)), r.FirstGet, r.Full, n/r.Full/1e6)
	}
	return l.err
}

func cardsTable(w io.Writer, res *results) error {
	l := &lines{w: w}
	l.say("| keys | `memory_limit` | regions of items it allows | regions there were | translations, pages of 4 KiB | of 2 MiB |")
	l.say("|---|---|---|---|---|---|")
	for _, r := range res.Keys {
		n, each := regionsFor(r.MemoryLimit)
		l.say("| %s | %s | %d of %s | %d | %s | %s |", count(r.Keys), size(float64(r.MemoryLimit)), n, size(float64(each)), r.Regions,
			size(float64(translations(r.Registered, 4<<10))), size(float64(translations(r.Registered, 2<<20))))
	}
	return l.err
}

func getsTable(w io.Writer, res *results) error {
	l := &lines{w: w}
	l.say("| keys | fabric | p50, µs | p99, µs | places remembered | their memory | gets that began with one | at most, computed | directory pages, computed |")
	l.say("|---|---|---|---|---|---|---|---|---|")
	for _, r := range res.Keys {
		segments := int(r.Index) / layout.SegmentBytes(1)
		for _, g := range r.Gets {
			l.say("| %s | %s | %.2f | %.2f | %d | %s | %.0f %% | %.0f %% | %d |", count(r.Keys), g.Fabric, g.P50, g.P99, g.Places, size(float64(g.Bytes)),
				100*g.CacheHit, 100*min(1, zipf(client.DefaultCacheEntries, float64(r.Keys))), dirPages(segments, defaultShards))
		}
	}
	return l.err
}

// defaultShards is that of kvserver.
const defaultShards = 32

func sessionsTable(w io.Writer, res *results) error {
	l := &lines{w: w}
	if len(res.Sessions) > 0 {
		l.when(res, res.Sessions[0].Measured)
	}
	server, _ := sessionMemory()
	l.say("| sessions | fabric | resident, each | goroutines, each | descriptors, each | receives mapped, each | credits, each | all open after |")
	l.say("|---|---|---|---|---|---|---|---|")
	l.say("| computed | | | 2 | 1 | %s | %d | |", size(float64(server)), initialCredits)
	for _, r := range res.Sessions {
		n := float64(r.Sessions)
		l.say("| %s | %s | %s | %.2f | %.2f | %s | %.1f | %.1f s |", count(r.Sessions), r.Fabric, size(float64(r.Server.Resident)/n), per(r.Server.Goroutines, r.Sessions),
			per(r.Server.Files, r.Sessions), size(float64(r.Receives)/n), float64(r.Credits)/n, r.Open)
	}
	return l.err
}

func idleTable(w io.Writer, res *results) error {
	l := &lines{w: w}
	l.say("| sessions | fabric | after a get: READs a second, each | server, processors | clients, processors | at rest: READs a second, each | server | clients |")
	l.say("|---|---|---|---|---|---|---|---|")
	l.say("| computed | | %.2f | | | 0 | | |", beats())
	for _, r := range res.Sessions {
		l.say("| %s | %s | %.2f | %.3f | %.3f | %.2f | %.3f | %.3f |", count(r.Sessions), r.Fabric, r.Kept.Reads, r.Kept.ServerCPU, r.Kept.ClientCPU, r.Quiet.Reads, r.Quiet.ServerCPU, r.Quiet.ClientCPU)
	}
	return l.err
}

func clientsTable(w io.Writer, res *results) error {
	l := &lines{w: w}
	_, mapped := sessionMemory()
	l.say("| sessions of clients of their own | fabric | resident, each | goroutines, each | descriptors, each | messages mapped, each, computed |")
	l.say("|---|---|---|---|---|---|")
	for _, r := range res.Sessions {
		l.say("| %s | %s | %s | %.2f | %.2f | %s |", count(r.Sessions), r.Fabric, size(float64(r.Client.Resident)/float64(r.Sessions)),
			per(r.Client.Goroutines, r.Sessions), per(r.Client.Files, r.Sessions), size(float64(mapped)))
	}
	return l.err
}

// thousand is for what the page computes.
const thousand = 1000

func gossipTable(w io.Writer, res *results) error {
	l := &lines{w: w}
	if len(res.Members) > 0 {
		l.when(res, res.Members[0].Measured)
	}
	l.say("| members | packets/s | B/s in packets | push/pull every | one way of a push/pull, computed | measured | begun in that time | B/s in push/pulls, computed | processors |")
	l.say("|---|---|---|---|---|---|---|---|---|")
	row := func(n int, r membersResult, measured bool) {
		state := float64(stateBytes(n, len("node-0000"), r.Meta, r.Table))
		every := pushPull(n)
		got, begun, packets, bytes, cpu := "", "", "2", fmt.Sprintf("%.0f", r.PacketBytes), ""
		if measured {
			got, begun = size(r.StreamBytes/2), fmt.Sprintf("%.2f", r.Streams)
			packets, cpu = fmt.Sprintf("%.2f", r.Packets), fmt.Sprintf("%.4f", r.CPU)
		}
		l.say("| %s | %s | %s | %.0f s | %s | %s | %s | %s | %s |", count(n), packets, bytes, every.Seconds(), size(state), got, begun, rate(2*state/every.Seconds()), cpu)
	}
	for _, r := range res.Members {
		row(r.Members, r, true)
	}
	if n := len(res.Members); n > 0 {
		row(thousand, res.Members[n-1], false)
	}
	return l.err
}

func newsTable(w io.Writer, res *results) error {
	l := &lines{w: w}
	l.say("| members | all know all after | a new table: at half, at all | sent for it, by each | computed | gone without a word: known to half, to all | suspected for, computed | view for clients |")
	l.say("|---|---|---|---|---|---|---|---|")
	advert := func(r membersResult, n int) float64 { return float64(newsBytes(n, len("node-0000"), r.Meta, r.Table)) }
	for _, r := range res.Members {
		least, most := suspicion(r.Members)
		l.say("| %s | %.1f s | %.2f s, %.2f s | %s | %s | %.1f s, %.1f s | %.0f to %.0f s | %s |", count(r.Members), r.Joined, r.Table50, r.TableLast,
			size(r.ChangeBytes), size(advert(r, r.Members)), r.Dead50, r.DeadLast, least.Seconds(), most.Seconds(), size(float64(r.View)))
	}
	if n := len(res.Members); n > 0 {
		r := res.Members[n-1]
		least, most := suspicion(thousand)
		l.say("| %s, computed | | | | %s | | %.0f to %.0f s | %s |", count(thousand), size(advert(r, thousand)), least.Seconds(), most.Seconds(),
			size(float64(r.View)/float64(r.Members)*thousand))
	}
	return l.err
}
