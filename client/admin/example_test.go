package admin_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
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

func ExampleAdmin_Stats() {
	c, done := open()
	defer done()
	ctx := context.Background()
	c.Put(ctx, []byte("k"), []byte("v"))
	stats, err := admin.Of(c).Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats.Client.Puts, len(stats.Server) > 0)
	// Output: 1 true
}

func ExampleAdmin_Server() {
	c, done := open()
	defer done()
	info := admin.Of(c).Server()
	fmt.Println(info.Shards, info.MaxValue)
	// Output: 4 1073741824
}

func ExampleNode_ReadRegion() {
	c, done := open()
	defer done()
	ctx := context.Background()
	node, err := admin.Of(c).Node("") // of a cluster: the id of one of its nodes
	if err != nil {
		log.Fatal(err)
	}
	view, err := node.View(ctx)
	if err != nil {
		log.Fatal(err)
	}
	head := make([]byte, 16)
	if err := node.ReadRegion(ctx, view.Regions[0].ID, 0, head); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", head[:8]) // the magic of a region
	// Output: "RKVREGN1"
}

func ExampleNode_View() {
	c, done := open()
	defer done()
	node, err := admin.Of(c).Node("")
	if err != nil {
		log.Fatal(err)
	}
	view, err := node.View(context.Background())
	fmt.Println(view.Shards, view.Regions[0].Kind, err)
	// Output: 4 index <nil>
}
