package main

import (
	"fmt"
	"os"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// growth is what a get costs as the store grows.
func growth(o options) *row {
	r := newRow("growth", "Cost as it grows: gets of 64 B, one client, Zipf 0.99",
		"The same load on stores of more and more keys. With the location cache at its default size, and without one, where every get looks the place up.", p50())
	sizes := []struct {
		name    string
		records uint64
	}{{"100 k", 100_000}, {"1 M", 1_000_000}}
	for _, s := range sizes {
		d := dataset{o.few(s.records), 64, "zipf"}
		if o.quick {
			d.records = s.records / 100
		}
		r.add(
			ours(o, "rdmakv shm, "+s.name, way{fabric: "shm", wait: "adaptive", sync: "off"}, d, single("get")),
			ours(o, "rdmakv shm, no cache, "+s.name, way{fabric: "shm", wait: "adaptive", sync: "off", cache: -1}, d, single("get")),
			ours(o, "rdmakv iwarp, "+s.name, way{fabric: "iwarp", wait: "adaptive", sync: "off"}, d, single("get")),
			lmdb("LMDB, "+s.name, d, 1),
			grown(peer{"redis", "unix", ""}.inC(d, single("get"), true), s.name),
		)
	}
	return r.grows("1 M", true)
}

// grown gives a peer's contender the name of its size.
func grown(c contender, size string) contender {
	c.Name += ", " + size
	return c
}

// What a get may cost of so many keys, as often as of 100 k.
const (
	growthIwarp = 1.05
	growthShm   = 1.5
)

// grows holds the gets of a larger store to those of one of 100 k keys.
func (r *row) grows(size string, headlines bool) *row {
	for _, of := range []struct {
		fabric string
		limit  float64
	}{{"iwarp", growthIwarp}, {"shm", growthShm}} {
		name := "rdmakv " + of.fabric + ", "
		r.versus(fmt.Sprintf("%s%s keys: at most %g of 100 k keys", name, size, of.limit), name+size, name+"100 k", report.AtMost, of.limit)
		if headlines {
			r.headline(fmt.Sprintf("get of 64 B, %s, %s keys, Zipf, p50, to 100 k keys", of.fabric, size))
		}
	}
	return r.versus("rdmakv shm, no cache, "+size+" keys against 100 k keys", "rdmakv shm, no cache, "+size, "rdmakv shm, no cache, 100 k", report.AtMost, growthShm).beside().
		versus("LMDB, "+size+" keys against 100 k keys", "LMDB, "+size, "LMDB, 100 k", report.AtMost, growthShm).beside()
}

// grownTo is a store of many millions of keys beside one of 100 k, in a row of its own because
// of the memory that it takes: one server for both fabrics, and no server of a peer.
func grownTo(o options, records uint64) *row {
	size := fmt.Sprintf("%d M", records/1_000_000)
	r := newRow(fmt.Sprintf("growth-%dm", records/1_000_000), "Cost as it grows: gets of 64 B of "+size+" keys, one client, Zipf 0.99",
		"The load of row `growth` on a store of "+size+" keys and on one of 100 k. Both fabrics are served by one server for each size.", p50())
	r.needs = records * (heldByOurs + heldByLMDB)
	if o.quick {
		r.needs, records = 0, records/1000
	}
	for _, s := range []struct {
		name    string
		records uint64
	}{{"100 k", o.few(100_000)}, {size, records}} {
		d := dataset{s.records, 64, "zipf"}
		r.add(
			ours(o, "rdmakv shm, "+s.name, way{fabric: "shm", wait: "adaptive", sync: "off"}, d, single("get")),
			ours(o, "rdmakv shm, no cache, "+s.name, way{fabric: "shm", wait: "adaptive", sync: "off", cache: -1}, d, single("get")),
			ours(o, "rdmakv iwarp, "+s.name, way{fabric: "iwarp", wait: "adaptive", sync: "off", shared: true}, d, single("get")),
			lmdb("LMDB, "+s.name, d, 1),
		)
	}
	return r.grows(size, false)
}

// What a key of 16 B + 64 B takes of memory while such a row is measured, in bytes, with room: of
// kvserver (130 of resident memory at ten million keys, and an index that is outgrown stays for a
// lease), and of LMDB's file (92).
const (
	heldByOurs = 200
	heldByLMDB = 110
)

// short says what a row lacks of memory to be measured, "" if it has enough: a machine that
// swaps, or ends a server for want of memory, would say nothing of gets.
func (r *row) short(meminfo string) string {
	const room = 2 << 30 // for all else
	free, err := servers.Available(meminfo)
	if r.needs == 0 || err != nil || free >= r.needs+room {
		return ""
	}
	return fmt.Sprintf("the row needs %.0f GiB of memory and this machine has %.0f GiB available: left out, run it on a larger one", gib(r.needs+room), gib(free))
}

func gib(n uint64) float64 { return float64(n) / (1 << 30) }

// memInfo is /proc/meminfo, "" where there is none.
func memInfo() string {
	text, _ := os.ReadFile("/proc/meminfo")
	return string(text)
}
