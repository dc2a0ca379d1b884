package places

import (
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestSettle: the memory of a table that is large is handed over when the table is made, while places are put and found,
// and that of a small one is not.
func TestSettle(t *testing.T) {
	var told []int
	var mu sync.Mutex
	done := make(chan struct{}, 100)
	c := NewCache(4<<20, 0, func(b []byte) {
		mu.Lock()
		told = append(told, len(b))
		mu.Unlock()
		done <- struct{}{}
	})
	log := NewRetired(0)
	hash := func(i uint64) layout.Hash { return layout.HashKey(1, []byte{byte(i), byte(i >> 8), byte(i >> 16), 1}) }
	const keys = 700_000
	for i := range uint64(2 * keys) { // what the smaller tables have given up comes again
		i %= keys
		c.Put(hash(i), layout.Loc{Place: layout.Place(i + 1), Size: 128}, log)
	}
	<-done
	found := 0
	for i := range uint64(keys) {
		c.Ahead(hash(i))
		if loc, _ := c.Find(hash(i), log); loc.Place == layout.Place(i+1) {
			found++
		}
	}
	if found < keys*9/10 {
		t.Errorf("%d of %d places are found", found, keys)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 1 || told[0] != c.Size() {
		t.Errorf("told of tables of %v bytes; the one in use has %d", told, c.Size())
	}
	(*Cache)(nil).Ahead(hash(1))
	NewCache(100, 0, func([]byte) { t.Error("told of a small table") }).Put(hash(1), layout.Loc{Place: 1, Size: 128}, log)
}
