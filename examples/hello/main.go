// Hello is the smallest program that uses rdmakv: it stores a value, gets it
// back by a one-sided READ, and says how the get was answered.
//
//	kvserver --data-dir /tmp/hello &
//	go run ./examples/hello 127.0.0.1:7400
//
// Against a cluster it is the same: any node, or several with commas between, and
// the client finds the one that owns the key.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client"
	_ "github.com/rdmakv/rdmakv/client/fabrics" // every way to a server that this machine has
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: hello HOST:PORT[,HOST:PORT...]")
		os.Exit(2)
	}
	if err := hello(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func hello(servers string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{
		Servers: strings.Split(servers, ","),
	})
	if err != nil {
		return err
	}
	defer c.Close()

	if err := c.Put(ctx, []byte("greeting"), []byte("hello, one-sided world")); err != nil {
		return err
	}
	value, err := c.Get(ctx, []byte("greeting"))
	if err != nil {
		return err
	}
	n := c.Counters()
	fmt.Printf("%s\n%d READs; %d gets one-sided, %d by SEND\n", value, n.Reads, n.OneSidedHits, n.SendGets)
	return nil
}
