package cluster

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestWrongNode: a client that goes to a node for keys of another, present or absent,
// is told that they have moved, and never that they are not there, although it READs
// the memory of that node.
func TestWrongNode(t *testing.T) {
	parallel(t)
	w := newWorld(t).born()
	c := w.dial("east")
	direct, err := client.Dial(within(t), client.Config{
		Servers: []string{w.Node("n2").Addr()}, Fabrics: []rdma.Fabric{w.net.Host("west").Fabric(iwarp.New(iwarp.Options{}))}, Secret: w.Secret,
		Direct: true, Timeout: PatientLimit,
	})
	must(t, err)
	defer direct.Close()
	for _, k := range c.KeysOf("n2", "its own", 50) {
		must(t, direct.Put(within(t), k, k))
		if v, err := direct.Get(within(t), k); err != nil || string(v) != string(k) {
			t.Errorf("a key of its own: %q, %v", v, err)
		}
	}
	must(t, c.WaitOneSided(within(t)))
	for _, id := range []string{"n1", "n3"} {
		for i, k := range c.KeysOf(id, "another's", 50) {
			if i%2 == 0 {
				must(t, c.Put(within(t), k, k))
			}
			_, err := direct.Get(within(t), k)
			put := direct.Put(within(t), k, []byte("misplaced"))
			_, del := direct.Delete(within(t), k)
			_, many := direct.MultiGet(within(t), [][]byte{k, k})
			for what, err := range map[string]error{"get": err, "put": put, "delete": del, "multi-get": many} {
				if !errors.Is(err, client.ErrMoved) || errors.Is(err, client.ErrNotFound) {
					t.Errorf("%s of a key of %s at n2: %v, want that it has moved", what, id, err)
				}
			}
			want := fmt.Sprint(i%2 == 0)
			if there, err := c.Exists(within(t), k); err != nil || fmt.Sprint(there) != want {
				t.Errorf("%q exists: %v, %v, want %s", k, there, err, want)
			}
		}
	}
}
