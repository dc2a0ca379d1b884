package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/test/node"
)

// A pass is what was seen while every key was read.
type pass struct {
	gets     int
	oneSided uint64 // gets answered by READs alone
	bySend   uint64
	reads    uint64 // RDMA READs posted
	hist     *hdrhistogram.Histogram
	cpu      time.Duration // of the server, meanwhile
	took     time.Duration
}

// A comparison is three passes of one new client over one server: first over
// names that do not exist, then over all keys with nothing in the location
// cache, then again and again with everything in it.
type comparison struct {
	absent, cold, warm pass
	startup            time.Duration
}

// readBack reads and compares everything.
func (d *demo) readBack(ctx context.Context, n *node.Node, stanzas []stanza) (comparison, error) {
	res := comparison{startup: n.Startup}
	dialCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := client.Dial(dialCtx, client.Config{Servers: []string{n.Data}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}})
	if err != nil {
		return res, err
	}
	defer c.Close()
	start := time.Now()
	if err := waitFilled(ctx, c, stanzas); err != nil {
		return res, err
	}
	if took := time.Since(start); took > 500*time.Millisecond {
		d.out.step("filled", "%s later memory is filled from disk and old leases are over; meanwhile some gets go by SEND", durationText(took))
	}
	largest := 0
	for _, s := range stanzas {
		largest = max(largest, len(s.value))
	}
	buf := make([]byte, largest+1)
	get := func(s stanza) error {
		buf, err = c.GetInto(ctx, []byte(s.key), buf)
		if err != nil {
			return err
		}
		if !bytes.Equal(buf, []byte(s.value)) {
			return fmt.Errorf("key %q: the value read back is not the one that was stored", s.key)
		}
		return nil
	}
	if res.absent, err = measure(c, n, stanzas, len(stanzas), func(s stanza) error {
		_, err := c.GetInto(ctx, []byte(s.key+" is not installed"), nil)
		if err == nil {
			return fmt.Errorf("key %q exists although nobody stored it", s.key+" is not installed")
		}
		if errors.Is(err, client.ErrNotFound) {
			return nil
		}
		return err
	}); err != nil {
		return res, err
	}
	if res.cold, err = measure(c, n, stanzas, len(stanzas), get); err != nil {
		return res, err
	}
	res.warm, err = measure(c, n, stanzas, max(d.gets, len(stanzas)), get)
	return res, err
}

// waitFilled waits until the memory of a server that has just started tells
// everything: its keys are read back from disk, and a lease has passed in which
// clients might still believe what they saw before that. Until then every key
// is answered too, but a miss only by message. It is over when each shard, of
// which these names hit all, answers a miss by READs.
func waitFilled(ctx context.Context, c *client.Client, stanzas []stanza) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		before := c.Counters().SendGets
		for _, s := range stanzas {
			if _, err := c.Get(ctx, []byte(s.key+" is not installed")); !errors.Is(err, client.ErrNotFound) {
				return fmt.Errorf("get of a key that nobody stored: %w", err)
			}
		}
		if c.Counters().SendGets == before {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server has not filled its memory: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// measure calls get for the stanzas in turn, as often as it was told.
func measure(c *client.Client, n *node.Node, stanzas []stanza, gets int, get func(stanza) error) (pass, error) {
	p := pass{gets: gets, hist: hdrhistogram.New(100, int64(time.Minute), 3)}
	before := c.Counters()
	cpuBefore, cpuErr := n.CPU()
	start := time.Now()
	for i := range gets {
		from := time.Now()
		if err := get(stanzas[i%len(stanzas)]); err != nil {
			return p, err
		}
		_ = p.hist.RecordValue(min(time.Since(from).Nanoseconds(), int64(time.Minute)))
	}
	p.took = time.Since(start)
	cpuAfter, err := n.CPU()
	if p.cpu = cpuAfter - cpuBefore; cpuErr != nil || err != nil {
		p.cpu = -1 // not known on this system
	}
	after := c.Counters()
	p.reads = after.Reads - before.Reads
	p.bySend = after.SendGets - before.SendGets
	p.oneSided = after.OneSidedHits + after.OneSidedMisses - before.OneSidedHits - before.OneSidedMisses
	return p, nil
}
