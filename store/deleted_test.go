package store

import "testing"

// TestDeletedItemIsDead: a client that remembers the place of a key does not
// find the key there once its delete is acknowledged.
func TestDeletedItemIsDead(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	r := n.reader()
	n.put(0, "k", "value")
	r.want(0, "k", "value")
	if !n.del(0, "k") {
		t.Fatal("not deleted")
	}
	r.wantAbsent(0, "k")
}
