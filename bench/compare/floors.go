package main

import (
	"context"
	"fmt"

	"github.com/rdmakv/rdmakv/bench/compare/clients"
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
	return readRequest, readResponse + layout.ItemSize(keys().Size, value, false)
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

// stream is raw TCP throughput.
func stream(chunk int) contender { return streamBy(chunk, "TCP stream in Go", "") }

// streamReno is that with the congestion control that iwarp takes within a machine.
func streamReno(chunk int) contender { return streamBy(chunk, "TCP stream in Go, Reno", "reno") }

func streamBy(chunk int, name, congestion string) contender {
	how := fmt.Sprintf("one process writes without a pause, %d B at a time, another reads", chunk)
	if congestion != "" {
		how += "; " + congestion
	}
	c := floor(name, "tcp", "both sleep", how, func(ctx context.Context, r *rig) (report.Sample, error) {
		return facing(ctx, job{Stream: &clients.Stream{Chunk: chunk, Congestion: congestion, Duration: r.o.slice}})
	})
	if congestion != "" {
		c.group += " " + congestion
	}
	return c
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
	how := fmt.Sprintf("Pebble's Set in a process without a network, %d goroutines", callers)
	if callers == 1 {
		how = "Pebble's Set in a process without a network, one goroutine"
	}
	if sync {
		how += ", each waits for the sync"
	}
	return floor("bare Pebble", "pebble", "", how, func(ctx context.Context, r *rig) (report.Sample, error) {
		return employ(ctx, job{Dir: r.dir, Commit: &clients.Commit{Callers: callers, Value: d.value, Keys: d.records, Sync: sync, Duration: r.o.slice}})
	})
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
