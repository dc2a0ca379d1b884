package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// open starts a server in this process, for the examples only, and connects to
// it. A program that has a server somewhere needs the second half alone.
func open() (c *client.Client, done func()) {
	srv, err := server.New(server.Config{
		Fabric: iwarp.New(iwarp.Options{}), DataDir: "data", FS: vfs.NewMem(),
		Shards: 4, MemoryLimit: 256 << 20, RegionSize: 80 << 20, MinFreeBytes: -1, LogBytes: 16 << 20,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := srv.Start(ctx); err != nil {
		log.Fatal(err)
	}
	c, err = client.Dial(ctx, client.Config{
		Servers: []string{srv.Addrs()[0].String()},
		Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})},
	})
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		c.Close()
		srv.Shutdown(ctx)
	}
}

func ExampleDial() {
	_, err := client.Dial(context.Background(), client.Config{
		Servers:  []string{"127.0.0.1:1"}, // no server is there
		Fabrics:  []rdma.Fabric{iwarp.New(iwarp.Options{})},
		DialOnce: true, // else it waits for one to come
	})
	fmt.Println(errors.Is(err, client.ErrUnavailable))
	// Output: true
}

func ExampleClient_Get() {
	c, done := open()
	defer done()
	ctx := context.Background()
	if err := c.Put(ctx, []byte("greeting"), []byte("hello")); err != nil {
		log.Fatal(err)
	}
	value, err := c.Get(ctx, []byte("greeting"))
	fmt.Printf("%s %v\n", value, err)
	_, err = c.Get(ctx, []byte("farewell"))
	fmt.Println(errors.Is(err, client.ErrNotFound))
	// Output:
	// hello <nil>
	// true
}

func ExampleClient_GetInto() {
	c, done := open()
	defer done()
	ctx := context.Background()
	c.Put(ctx, []byte("a"), []byte("first"))
	c.Put(ctx, []byte("b"), []byte("second"))
	buf := make([]byte, 0, 64) // used again and again
	for _, key := range []string{"a", "b"} {
		value, err := c.GetInto(ctx, []byte(key), buf)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", value)
	}
	// Output:
	// first
	// second
}

func ExampleClient_GetRange() {
	c, done := open()
	defer done()
	ctx := context.Background()
	c.Put(ctx, []byte("alphabet"), []byte("abcdefghijklmnopqrstuvwxyz"))
	part, err := c.GetRange(ctx, []byte("alphabet"), 23, 10)
	fmt.Printf("%s %v\n", part, err)
	// Output: xyz <nil>
}

func ExampleClient_Put() {
	c, done := open()
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	switch err := c.Put(ctx, []byte("balance"), []byte("100")); {
	case err == nil:
		fmt.Println("stored, durable, visible")
	case errors.Is(err, client.ErrOutcomeUnknown):
		fmt.Println("sent, but no reply came: it may have been stored")
	default:
		fmt.Println("not stored:", err)
	}
	// Output: stored, durable, visible
}

func ExampleClient_Delete() {
	c, done := open()
	defer done()
	ctx := context.Background()
	c.Put(ctx, []byte("k"), nil)
	fmt.Println(c.Delete(ctx, []byte("k")))
	fmt.Println(c.Delete(ctx, []byte("k")))
	// Output:
	// true <nil>
	// false <nil>
}

func ExampleClient_Exists() {
	c, done := open()
	defer done()
	ctx := context.Background()
	c.Put(ctx, []byte("k"), nil)
	fmt.Println(c.Exists(ctx, []byte("k")))
	fmt.Println(c.Exists(ctx, []byte("no such key")))
	// Output:
	// true <nil>
	// false <nil>
}

func ExampleClient_Stat() {
	c, done := open()
	defer done()
	ctx := context.Background()
	c.Put(ctx, []byte("k"), make([]byte, 1<<20))
	info, err := c.Stat(ctx, []byte("k"))
	fmt.Println(info.Size, err)
	// Output: 1048576 <nil>
}

func ExampleClient_Scan() {
	c, done := open()
	defer done()
	ctx := context.Background()
	for _, name := range []string{"user:bob", "user:alice", "group:staff"} {
		c.Put(ctx, []byte(name), []byte("…"))
	}
	for entry, err := range c.Scan(ctx, client.ScanOptions{Prefix: []byte("user:")}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", entry.Key)
	}
	// Output:
	// user:alice
	// user:bob
}

func ExampleClient_MultiGet() {
	c, done := open()
	defer done()
	ctx := context.Background()
	c.Put(ctx, []byte("a"), []byte("1"))
	c.Put(ctx, []byte("c"), []byte("3"))
	results, err := c.MultiGet(ctx, [][]byte{[]byte("a"), []byte("b"), []byte("c")})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Printf("%q %v\n", r.Value, errors.Is(r.Err, client.ErrNotFound))
	}
	// Output:
	// "1" false
	// "" true
	// "3" false
}

func ExampleClient_MultiPut() {
	c, done := open()
	defer done()
	ctx := context.Background()
	err := c.MultiPut(ctx, []client.Pair{
		{Key: []byte("a"), Value: []byte("1")},
		{Key: []byte("b"), Value: []byte("2")},
		{Key: nil, Value: []byte("3")},
	})
	var part *client.PartialError
	if errors.As(err, &part) {
		for _, f := range part.Failures {
			fmt.Println("pair", f.Index, "failed:", errors.Is(f.Err, client.ErrKeyEmpty))
		}
	}
	// Output: pair 2 failed: true
}

func ExampleClient_Ping() {
	c, done := open()
	defer done()
	took, err := c.Ping(context.Background())
	fmt.Println(took > 0, err)
	// Output: true <nil>
}

func ExampleClient_Close() {
	c, done := open()
	defer done()
	c.Close()
	_, err := c.Get(context.Background(), []byte("k"))
	fmt.Println(errors.Is(err, client.ErrClosed))
	// Output: true
}

func ExampleClient_Counters() {
	c, done := open()
	defer done()
	ctx := context.Background()
	c.Get(ctx, []byte("no such key"))
	n := c.Counters()
	fmt.Println(n.Gets, n.OneSidedHits+n.OneSidedMisses+n.SendGets)
	// Output: 1 1
}
