// Command writer is the inner half of the test of power cuts: in the guest, it
// first compares the node with what the test outside knows to be acknowledged,
// and then puts, telling each acknowledgement, until the power goes.
//
// Lines on standard output: "verified N", then "ack KEY SEQUENCE" for each put.
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
)

func main() {
	server := flag.String("server", "127.0.0.1:7400", "HOST:PORT")
	told := flag.String("told", "", "`file` with lines \"KEY SEQUENCE\": what is certain")
	first := flag.Uint64("first", 1, "the first sequence to write: no life writes one twice")
	flag.Parse()
	if err := run(*server, *told, *first); err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
		os.Exit(1)
	}
}

func keyOf(i int) []byte { return fmt.Appendf(nil, "key-%04d", i) }

// valueOf is a value that says which key it belongs to and whether it is whole.
func valueOf(i int, seq uint64) []byte {
	b := fmt.Appendf(nil, "%d %d ", i, seq)
	for n := len(b) + (i*53)%3000; len(b) < n; {
		b = append(b, byte('a'+(seq+uint64(len(b)))%26))
	}
	return fmt.Appendf(b, " %08x", crc32.ChecksumIEEE(b))
}

func run(server, told string, first uint64) error {
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
	n, err := verify(ctx, c, told)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	var mu sync.Mutex
	say := func(format string, args ...any) error {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format, args...)
		return out.Flush()
	}
	if err := say("verified %d\n", n); err != nil {
		return err
	}
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			for seq := first; ; seq++ {
				for i := w; i < keys; i += writers {
					if err := c.Put(ctx, keyOf(i), valueOf(i, seq)); err != nil {
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
func verify(ctx context.Context, c *client.Client, told string) (n int, err error) {
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
		if err != nil {
			return n, fmt.Errorf("LOST: key %d: %w; sequence %d was acknowledged", i, err, want)
		}
		var key int
		var seq uint64
		if _, err := fmt.Sscan(string(value), &key, &seq); err != nil || key != i || string(value) != string(valueOf(i, seq)) {
			return n, fmt.Errorf("TORN: key %d has %.40q (%d bytes)", i, value, len(value))
		}
		if seq < want {
			return n, fmt.Errorf("LOST: key %d has sequence %d; %d was acknowledged", i, seq, want)
		}
	}
	return n, nil
}
