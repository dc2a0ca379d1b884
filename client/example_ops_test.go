package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// A lock that ends by itself: the program that stores it first has it.
func ExampleClient_PutWith() {
	c, done := open()
	defer done()
	ctx := context.Background()
	lock := func(who string) {
		_, err := c.PutWith(ctx, []byte("lock"), []byte(who), client.PutOptions{IfAbsent: true, TTL: time.Minute})
		switch {
		case err == nil:
			fmt.Println(who, "has the lock")
		case errors.Is(err, client.ErrExists):
			fmt.Println(who, "must wait")
		default:
			log.Fatal(err)
		}
	}
	lock("alice")
	lock("bob")
	// Output:
	// alice has the lock
	// bob must wait
}

// A change that starts from what was read, and is made again if another
// program was faster.
func ExampleClient_GetItem() {
	c, done := open()
	defer done()
	ctx, key := context.Background(), []byte("list")
	c.Put(ctx, key, []byte("milk"))
	for {
		item, err := c.GetItem(ctx, key)
		if err != nil {
			log.Fatal(err)
		}
		longer := append(item.Value, ",bread"...)
		_, err = c.PutWith(ctx, key, longer, client.PutOptions{IfVersion: item.Version})
		if errors.Is(err, client.ErrVersionMismatch) {
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		break
	}
	value, _ := c.Get(ctx, key)
	fmt.Printf("%s\n", value)
	// Output: milk,bread
}

func ExampleClient_DeleteIf() {
	c, done := open()
	defer done()
	ctx := context.Background()
	version, err := c.PutWith(ctx, []byte("k"), []byte("v"), client.PutOptions{})
	if err != nil {
		log.Fatal(err)
	}
	c.Put(ctx, []byte("k"), []byte("newer"))
	err = c.DeleteIf(ctx, []byte("k"), version)
	fmt.Println(errors.Is(err, client.ErrVersionMismatch))
	// Output: true
}

func ExampleClient_Increment() {
	c, done := open()
	defer done()
	ctx := context.Background()
	fmt.Println(c.Increment(ctx, []byte("visits"), 1))
	fmt.Println(c.Increment(ctx, []byte("visits"), 41))
	// Output:
	// 1 <nil>
	// 42 <nil>
}

func ExampleClient_Touch() {
	c, done := open()
	defer done()
	ctx := context.Background()
	c.PutWith(ctx, []byte("session"), []byte("…"), client.PutOptions{TTL: time.Second})
	if err := c.Touch(ctx, []byte("session"), time.Hour); err != nil {
		log.Fatal(err)
	}
	item, err := c.GetItem(ctx, []byte("session"))
	fmt.Println(time.Until(item.Expiry) > 50*time.Minute, err)
	// Output: true <nil>
}

func ExampleClient_WriteBatch() {
	c, done := open()
	defer done()
	ctx := context.Background()
	var b client.Batch
	b.Put([]byte("{alice}:balance"), []byte("90"))
	b.PutWith([]byte("{alice}:transfer:17"), []byte("paid 10"), client.PutOptions{IfAbsent: true})
	for range 2 { // the second time the transfer is there already
		_, err := c.WriteBatch(ctx, &b)
		var refused *client.VersionError
		if errors.As(err, &refused) {
			fmt.Println("nothing written: write", refused.Part, "was refused")
		} else {
			fmt.Println(err)
		}
	}
	// Output:
	// <nil>
	// nothing written: write 1 was refused
}

func ExampleClient_Watch() {
	c, done := open()
	defer done()
	ctx := context.Background()
	from, err := c.Position(ctx)
	if err != nil {
		log.Fatal(err)
	}
	c.Put(ctx, []byte("user:alice"), []byte("new"))
	c.Put(ctx, []byte("other"), nil)
	c.Delete(ctx, []byte("user:alice"))
	n := 0
	for event, err := range c.Watch(ctx, []byte("user:"), client.WatchOptions{From: from, Values: true}) {
		if err != nil {
			log.Fatal(err)
		}
		if event.Skipped {
			fmt.Println("some changes were missed")
			continue
		}
		fmt.Printf("%v %s %s\n", event.Op, event.Key, event.Value)
		if n++; n == 2 {
			break
		}
	}
	// Output:
	// put user:alice new
	// delete user:alice
}

// A list in pages, as a web page would show it.
func ExampleClient_Scan_pages() {
	c, done := open()
	defer done()
	ctx := context.Background()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		c.Put(ctx, []byte(name), nil)
	}
	opts := client.ScanOptions{Start: []byte("b"), Limit: 2, KeysOnly: true}
	for page := 1; ; page++ {
		n := 0
		for entry, err := range c.Scan(ctx, opts) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("page %d: %s\n", page, entry.Key)
			opts.After, n = entry.Key, n+1 // where the next page begins
		}
		if n < opts.Limit {
			break
		}
	}
	// Output:
	// page 1: b
	// page 1: c
	// page 2: d
	// page 2: e
}

func ExamplePosition() {
	c, done := open()
	defer done()
	now, err := c.Position(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	text := now.String() // to be kept in a file, say
	again, err := client.ParsePosition(text)
	fmt.Println(again == now, err)
	// Output: true <nil>
}

// A loader keeps a window of puts under way from one goroutine, and learns which have failed.
func ExampleClient_PutAsync() {
	c, done := open()
	defer done()
	ctx := context.Background()
	var pending []*client.Pending
	for i := range 1000 {
		p, err := c.PutAsync(ctx, fmt.Appendf(nil, "row-%03d", i), []byte("value"))
		if err != nil {
			log.Fatal(err)
		}
		pending = append(pending, p)
	}
	if err := c.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	failed := 0
	for _, p := range pending {
		if _, err := p.Wait(); err != nil {
			failed++
		}
	}
	fmt.Println(failed, "of", len(pending), "failed")
	// Output: 0 of 1000 failed
}
