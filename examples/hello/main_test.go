package main

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

func TestHello(t *testing.T) {
	srv, err := server.New(server.Config{
		Fabric: iwarp.New(iwarp.Options{}), DataDir: "data", FS: vfs.NewMem(),
		Shards: 4, MemoryLimit: 256 << 20, RegionSize: 80 << 20, MinFreeBytes: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer srv.Shutdown(context.Background())
	if err := hello(srv.Addrs()[0].String()); err != nil {
		t.Fatal(err)
	}
}
