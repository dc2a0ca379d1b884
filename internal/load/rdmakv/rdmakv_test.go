package rdmakv

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/load"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/store"
)

// dial starts a node and connects to it.
func dial(t *testing.T) *client.Client {
	t.Helper()
	srv, err := server.New(server.Config{Fabric: iwarp.New(iwarp.Options{}), DataDir: t.TempDir(), Sync: store.Off, MemoryLimit: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(ctx, client.Config{Servers: []string{srv.Addrs()[0].String()}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := errors.Join(c.Close(), srv.Shutdown(ctx)); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestStore runs every operation against a real node: nothing fails, and the
// paths add up with what the client has counted.
func TestStore(t *testing.T) {
	c := dial(t)
	o := load.Options{
		Open: Open(c), Classify: Classify, Records: 300, Keys: load.Keys{Prefix: "t/"}, Values: load.FixedSize(100), Workers: 3,
		Mix: load.Mix{load.OpGet: 5, load.OpPut: 2, load.OpInsert: 1, load.OpScan: 0.5, load.OpRMW: 1}, Choice: load.Latest,
		Operations: 600, ScanMax: 10, Seed: 4, FillBatch: 50,
	}
	if _, err := load.Fill(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	before := c.Counters()
	res, err := load.Run(t.Context(), o)
	if err != nil || res.Errors != 0 || res.Ops != 600 {
		t.Fatalf("%d operations, %d errors, %v: %v", res.Ops, res.Errors, err, res.ErrorKinds)
	}
	get, paths := res.Operations["get"], int64(0)
	for _, p := range get.Paths {
		paths += p.Ops
	}
	after := c.Counters()
	if want := get.Ops + res.Operations["rmw"].Ops; paths != get.Ops || int64(after.Gets-before.Gets) != want {
		t.Errorf("%d gets, %d by their paths, the client has counted %d of %d", get.Ops, paths, after.Gets-before.Gets, want)
	}
	if one, hits := get.Paths["read_1"].Ops, int64(after.OneReadHits-before.OneReadHits); one == 0 || one > hits {
		t.Errorf("%d gets by one READ, the client has counted %d", one, hits)
	}
	if scan := res.Operations["scan"]; scan.Keys == 0 || scan.Keys > 10*scan.Ops {
		t.Errorf("%d scans of %d keys", scan.Ops, scan.Keys)
	}
	o.Mix, o.Batch = load.Mix{load.OpGet: 1, load.OpPut: 1}, 32
	if res, err = load.Run(t.Context(), o); err != nil || res.Errors != 0 || res.Ops != 600 {
		t.Errorf("%d operations, %d errors, %v: %v", res.Ops, res.Errors, err, res.ErrorKinds)
	}
	s, err := Open(c)(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, path, err := s.Get(t.Context(), []byte("absent"), nil); !errors.Is(err, load.ErrNotFound) || !errors.Is(err, client.ErrNotFound) || path == load.PathNone {
		t.Errorf("a key that is not there: path %v, %v", path, err)
	}
	errs := make([]error, 2)
	s.(load.BatchStore).PutMany(t.Context(), [][]byte{[]byte("a"), nil}, [][]byte{[]byte("x"), []byte("y")}, errs)
	if errs[0] != nil || !errors.Is(errs[1], client.ErrKeyEmpty) {
		t.Errorf("%v", errs)
	}
	clear(errs)
	values := make([][]byte, 2)
	s.(load.BatchStore).GetMany(t.Context(), [][]byte{[]byte("a"), []byte("absent")}, values, errs)
	if errs[0] != nil || string(values[0]) != "x" || !errors.Is(errs[1], load.ErrNotFound) {
		t.Errorf("%q, %v", values, errs)
	}
	if err := s.Delete(t.Context(), []byte("absent")); err != nil {
		t.Error(err)
	}
}

// TestRegistered: values are put from and got into registered memory, and a store that is
// closed gives it back.
func TestRegistered(t *testing.T) {
	c := dial(t)
	o := load.Options{
		Open: Open(c), Classify: Classify, Records: 20, Keys: load.Keys{Prefix: "r/"}, Values: load.FixedSize(200_000), Workers: 2,
		Mix: load.Mix{load.OpGet: 1, load.OpPut: 1, load.OpRMW: 1}, Operations: 200, Seed: 4,
	}
	if _, err := load.Fill(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	before := c.Counters()
	o.Open = OpenRegistered(200_000, c)
	for range 3 { // the memory of one run is there for the next
		if res, err := load.Run(t.Context(), o); err != nil || res.Errors != 0 || res.Ops != 200 {
			t.Fatalf("%d operations, %d errors, %v: %v", res.Ops, res.Errors, err, res.ErrorKinds)
		}
	}
	if n := c.Counters().LargeReads - before.LargeReads; n == 0 {
		t.Error("no value was READ")
	}
	if _, err := OpenRegistered(0, c)(t.Context(), 0); !errors.Is(err, client.ErrTooLarge) {
		t.Error(err)
	}
	s, err := OpenRegistered(1000, c)(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	room := s.(load.RoomyStore).Room()
	copy(room, "in registered memory")
	for _, value := range [][]byte{room[:20], make([]byte, 2000), {}} {
		if err := s.Put(t.Context(), []byte("a"), value); err != nil {
			t.Error(err)
		}
		want := string(value)
		got, _, err := s.Get(t.Context(), []byte("a"), nil)
		if len(value) > len(room) {
			if !errors.Is(err, client.ErrTooLarge) {
				t.Error(err)
			}
		} else if err != nil || string(got) != want || len(got) > 0 && &got[0] != &room[0] {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestNames: every path of the client has a name here, the same one, and errors
// have kinds.
func TestNames(t *testing.T) {
	for p := admin.PathOneRead; p.String() != "unknown"; p++ {
		if got := pathOf(p); got.String() != p.String() {
			t.Errorf("%v is %q", p, got)
		}
	}
	for err, want := range map[error]string{
		fmt.Errorf("x: %w", client.ErrTimeout): "timeout", client.ErrOverloaded: "overloaded", errors.New("x"): "other",
		notFound{client.ErrNotFound}: "not found", fmt.Errorf("y: %w", load.ErrWrongValue): "wrong value",
	} {
		if got := Classify(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}
