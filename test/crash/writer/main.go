// Command writer is the inner half of the test of power cuts: in the guest, it
// first compares the node with what the test outside knows to be acknowledged,
// and then puts and deletes, telling each acknowledgement, until the power goes.
//
// Lines on standard output: "verified N", then "ack KEY SEQUENCE" for each write.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

const (
	keys    = 400
	writers = 4
	// lifeWrites bounds the writes of a key in one life, whose sequences begin there.
	lifeWrites = 1_000_000
)

func main() {
	server := flag.String("server", "127.0.0.1:7400", "HOST:PORT")
	told := flag.String("told", "", "`file` with lines \"KEY SEQUENCE\": what is certain")
	life := flag.Uint64("life", 0, "number of this life: no life writes a sequence twice")
	flag.Parse()
	if err := run(*server, *told, *life); err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
		os.Exit(1)
	}
}

func keyOf(i int) []byte { return fmt.Appendf(nil, "key-%04d", i) }

// deletes says whether the write of a key with a sequence is a delete.
func deletes(i int, seq uint64) bool { return (seq+uint64(i))%7 == 0 }

// valueOf is a value that says which key it belongs to and whether it is whole. Some stand
// apart from their keys, and a few are written to the log in pieces.
func valueOf(i int, seq uint64) []byte {
	b := fmt.Appendf(nil, "%d %d ", i, seq)
	n := len(b) + (i*53)%3000
	if i%100 == 99 {
		n += 280_000
	}
	for len(b) < n {
		b = append(b, byte('a'+(seq+uint64(len(b)))%26))
	}
	return fmt.Appendf(b, " %08x", crc32.ChecksumIEEE(b))
}

func run(server, told string, life uint64) error {
	ctx := context.Background()
	var c *client.Client
	var err error
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		c, err = client.Dial(ctx, client.Config{Servers: []string{server}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}, Timeout: 30 * time.Second})
		if err == nil {
			break
		}
		if time.Since(begin) > 2*time.Minute {
			return err
		}
	}
	out := bufio.NewWriter(os.Stdout)
	var mu sync.Mutex
	say := func(format string, args ...any) error {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format, args...)
		return out.Flush()
	}
	// What was found to be newer than the last acknowledgement is certain from here on, too.
	n, err := verify(ctx, c, told, life, func(i int, seq uint64) error { return say("ack %d %d\n", i, seq) })
	if err != nil {
		return err
	}
	if err := say("verified %d\n", n); err != nil {
		return err
	}
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			for seq := life*lifeWrites + 1; ; seq++ {
				for i := w; i < keys; i += writers {
					var err error
					if deletes(i, seq) {
						_, err = c.Delete(ctx, keyOf(i))
					} else {
						err = c.Put(ctx, keyOf(i), valueOf(i, seq))
					}
					if err != nil {
						errs <- err
						return
					}
					if err := say("ack %d %d\n", i, seq); err != nil {
						errs <- err
						return
					}
				}
			}
		}()
	}
	return <-errs
}

// verify compares each key with what is certain of it.
func verify(ctx context.Context, c *client.Client, told string, life uint64, newer func(i int, seq uint64) error) (n int, err error) {
	f, err := os.Open(told)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var i int
		var want uint64
		if _, err := fmt.Sscan(s.Text(), &i, &want); err != nil {
			return n, err
		}
		value, err := c.Get(ctx, keyOf(i))
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			return n, fmt.Errorf("key %d: %w", i, err)
		}
		var key int
		var seq uint64
		if err == nil {
			if _, err := fmt.Sscan(string(value[:min(len(value), 40)]), &key, &seq); err != nil || key != i || string(value) != string(valueOf(i, seq)) {
				return n, fmt.Errorf("TORN: key %d has %.40q (%d bytes)", i, value, len(value))
			}
		}
		if !possible(i, want, seq, life) {
			return n, fmt.Errorf("LOST: key %d has sequence %d (0: none); %d was acknowledged (a delete: %v)", i, seq, want, deletes(i, want))
		}
		if seq > want {
			if err := newer(i, seq); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// possible says whether a key may have the value of a sequence (0: none) when the write with
// sequence want was the last that was acknowledged: it is that write's, or that of the one
// write behind it which the power has cut short, or of such a write of a later life.
func possible(i int, want, found, life uint64) bool {
	fits := func(seq uint64) bool {
		return found == seq && !deletes(i, seq) || found == 0 && deletes(i, seq)
	}
	if fits(want) || fits(want+1) {
		return true
	}
	for l := want/lifeWrites + 1; l < life; l++ {
		if fits(l*lifeWrites + 1) {
			return true
		}
	}
	return false
}
