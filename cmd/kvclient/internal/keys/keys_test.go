package keys

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/apptest"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestKeysFailOneByOne: get and delete of several keys report each key.
func TestKeysFailOneByOne(t *testing.T) {
	c, err := client.Dial(world.With(t.Context(), world.World{Heap: true}), client.Config{Servers: []string{apptest.Alone(t)}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Put(t.Context(), []byte("here"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("x"), 5000) // the command line would not take these
	keys := [][]byte{{}, long, []byte("here"), []byte("nokey"), {}}
	for _, what := range []string{"get", "delete"} { // what is deleted cannot be got
		var out, errOut bytes.Buffer
		a := &app.App{Stdout: &out, Stderr: &errOut}
		if what == "get" {
			a.Complain(getKeys(t.Context(), a, c, keys, nil))
		} else {
			a.Complain(deleteKeys(t.Context(), a, c, keys, 0))
		}
		lines := strings.Split(strings.TrimSpace(errOut.String()), "\n")
		if len(lines) != 3 || lines[0] != `kvclient: "nokey": key not found` ||
			!strings.HasPrefix(lines[1], `kvclient: "", "": `) || !strings.Contains(lines[1], client.ErrKeyEmpty.Error()) ||
			!strings.HasPrefix(lines[2], `kvclient: "xxx`) || !strings.Contains(lines[2], client.ErrKeyTooLarge.Error()) {
			t.Errorf("%s: %q", what, lines)
		}
		if what == "get" && out.String() != "here\tv\n" {
			t.Errorf("it prints %q", &out)
		}
	}
}

// TestDeleteAll: many more keys than there are workers, and what does not begin so
// stays.
func TestDeleteAll(t *testing.T) {
	addr := apptest.Alone(t)
	c, err := client.Dial(world.With(t.Context(), world.World{Heap: true}), client.Config{Servers: []string{addr}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var pairs []client.Pair
	for i := range 3000 {
		key := []byte{'a' + byte(i%2), byte(i >> 8), byte(i)}
		pairs = append(pairs, client.Pair{Key: key, Value: key})
	}
	if err := c.MultiPut(t.Context(), pairs); err != nil {
		t.Fatal(err)
	}
	show := app.NewProgress(io.Discard, "deleted", 0, nil)
	err = deleteAll(t.Context(), c, []byte("a"), show)
	show.End()
	left := 0
	for e, err := range c.Scan(t.Context(), client.ScanOptions{KeysOnly: true}) {
		if err != nil || e.Key[0] != 'b' {
			t.Fatalf("%q, %v", e.Key, err)
		}
		left++
	}
	if err != nil || show.Keys.Load() != 1500 || left != 1500 {
		t.Errorf("%d deleted, %d left, %v", show.Keys.Load(), left, err)
	}
	// It ends with its context, and says so.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	show = app.NewProgress(io.Discard, "deleted", 0, nil)
	if err := deleteAll(ctx, c, []byte("b"), show); err == nil {
		t.Error("a context that has ended ends it with an error")
	}
	show.End()
}
