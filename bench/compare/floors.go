package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
	"github.com/rdmakv/rdmakv/bench/compare/jobs"
	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Bytes of a one-READ get by iWARP, beside the item: MPA's length and CRC, the
// headers of DDP, and RDMAP's of a READ request.
const (
	readRequest  = 2 + 18 + 28 + 4
	readResponse = 2 + 14 + 4
)

// sizesOf are the bytes of such a get in both directions.
func sizesOf(value int) (request, answer int) {
	return readRequest, readResponse + layout.ItemSize(jobs.Keys().Size, value, false)
}

// pingPongInGo is the floor of a get over sockets in Go.
func pingPongInGo(value int, spin bool) contender {
	return pinnedPingPong(value, spin, pins{})
}

func pinnedPingPong(value int, spin bool, on pins) contender {
	request, answer := sizesOf(value)
	name := "TCP ping-pong in Go, " + waitsWord(spin)
	if on.on {
		name += ", " + on.String()
	}
	return pingPong(name, "Go", clients.PingPong{Network: "tcp", Spin: spin, Request: request, Answer: answer}, on)
}

func waitsWord(spin bool) string {
	if spin {
		return "both spin"
	}
	return "both sleep"
}

// pingPong is the floor of a round trip over a socket, in Go or in C.
func pingPong(name, language string, p clients.PingPong, on pins) contender {
	return floor(name, p.Network, waitsWord(p.Spin), fmt.Sprintf("%d B there and %d B back, two processes in %s, nothing parsed", p.Request, p.Answer, language),
		func(ctx context.Context, r *rig) (report.Sample, error) {
			p.Duration = r.o.slice
			if language == "Go" {
				return facing(ctx, job{PingPong: &p, pins: on})
			}
			native, err := r.compiled(ctx, pins{})
			if err != nil {
				return report.Sample{}, err
			}
			return native.Floor(ctx, p)
		})
}

// pingPongInC is the floor of every program on sockets.
func pingPongInC(network string, value int, spin bool) contender {
	request, answer := sizesOf(value)
	name := map[string]string{"tcp": "TCP", "unix": "UNIX"}[network]
	return pingPong(fmt.Sprintf("%s ping-pong in C, %s", name, waitsWord(spin)), "C", clients.PingPong{Network: network, Spin: spin, Request: request, Answer: answer}, pins{})
}

// stream is raw TCP throughput, with the congestion control that all of a run has.
func stream(chunk int) contender {
	return floor("TCP stream in Go, Reno", "tcp", "both sleep", fmt.Sprintf("one process writes without a pause, %d B at a time, another reads; %s", chunk, clients.Congestion),
		func(ctx context.Context, r *rig) (report.Sample, error) {
			return facing(ctx, job{Stream: &clients.Stream{Chunk: chunk, Congestion: clients.Congestion, Duration: r.o.slice}})
		})
}

// copies is memory copied within one process.
func copies(size int) contender {
	return floor(fmt.Sprintf("memory copy of %s", bytesWord(size)), "memory", "", "from random places of 64 MiB, mean of 256 copies",
		func(ctx context.Context, r *rig) (report.Sample, error) {
			return employ(ctx, job{Copy: &copyJob{size, r.o.slice}})
		})
}

// appends is a file that grows durably.
func appends(record int) contender {
	return floor("append and fdatasync", "disk", "", fmt.Sprintf("%d B at a time, one thread", record),
		func(ctx context.Context, r *rig) (report.Sample, error) {
			return employ(ctx, job{Dir: r.dir, Appends: &appendsJob{record, r.o.slice}})
		})
}

// overwrites is the disk's sequential rate, as dd measures it, or with each block durable before
// the next.
func overwrites(block int, each bool) contender {
	name, how := "disk, written in sequence", "O_DIRECT, one fdatasync at the end, whose time counts"
	if each {
		name, how = name+", each block durable", "O_DIRECT|O_DSYNC"
	}
	return floor(name, "disk", "", fmt.Sprintf("%s at a time over a file that was written before, %s, one thread", bytesWord(block), how),
		func(ctx context.Context, r *rig) (report.Sample, error) {
			return employ(ctx, job{Dir: r.dir, Over: &overJob{block, each, r.o.slice}})
		})
}

// pebble is the database that rdmakv writes to, without rdmakv.
func pebble(d dataset, callers int, sync bool) contender {
	how := fmt.Sprintf("Pebble's Set in a process without a network, by the load generator with the same keys and values as rdmakv's, %d goroutines", callers)
	if callers == 1 {
		how = strings.Replace(how, "1 goroutines", "one goroutine", 1)
	}
	if sync {
		how += ", each waits for the sync"
	}
	return floor("bare Pebble", "pebble", "", how, func(ctx context.Context, r *rig) (report.Sample, error) {
		dir, err := r.pebble(ctx, d)
		if err != nil {
			return report.Sample{}, err
		}
		return employ(ctx, job{Load: &jobs.Load{
			Target: jobs.Target{System: "pebble", Addr: dir, Sync: sync}, Records: d.records, Value: d.value, Op: "put", Choice: d.choice, Callers: callers,
			Warm: warm(r.o), Duration: r.o.slice, Seed: r.o.seed,
		}})
	})
}

// pebble returns the directory of a database that holds a data set, as the servers of a row do.
func (r *rig) pebble(ctx context.Context, d dataset) (string, error) {
	dir := filepath.Join(r.dir, fmt.Sprintf("pebble-%d-%d", d.records, d.value))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fillLimit)
	defer cancel()
	_, err := employ(ctx, job{Fill: &jobs.Load{Target: jobs.Target{System: "pebble", Addr: dir}, Records: d.records, Value: d.value, Seed: r.o.seed}})
	if err != nil {
		return "", errors.Join(fmt.Errorf("filling Pebble: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

func floor(name, system, waits, how string, f func(context.Context, *rig) (report.Sample, error)) contender {
	return contender{
		Contender: report.Contender{Name: name, Kind: report.Floor, System: system, Waiting: waits, How: how},
		group:     "floor " + system, measure: f,
	}
}

func bytesWord(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
