package layout

import (
	"sync"
	"testing"
)

func TestDirBound(t *testing.T) {
	v := &View{Shards: 8}
	d := NewDir(v)
	page := make([]byte, PageSize)
	for shard := range uint16(8) {
		r, ok := d.setRoot(shard, MakeRoot(PlaceOfByte(1<<20), MaxDepth))
		if !ok || len(r.pages) != DirBytes(MaxDepth)/PageSize {
			t.Fatal("root")
		}
		for i := range r.pages {
			d.setPage(shard, r, i, page)
			if d.Pages() > DirCachePages {
				t.Fatalf("%d pages cached, bound %d", d.Pages(), DirCachePages)
			}
		}
	}
	d.ForgetAll()
	if d.Pages() != 0 || d.root(3) != nil {
		t.Errorf("%d pages after ForgetAll", d.Pages())
	}
	d.Forget(99) // a shard that is not there
	if d.root(99) != nil {
		t.Error("root of a shard that is not there")
	}
	if _, ok := d.setRoot(99, MakeRoot(0, 0)); ok {
		t.Error("root word kept for a shard that is not there")
	}
}

// A new root word takes the pages of the old one with it; the same one keeps
// them.
func TestDirRootChange(t *testing.T) {
	d := NewDir(&View{Shards: 1})
	page := make([]byte, PageSize)
	r, _ := d.setRoot(0, MakeRoot(512, 3))
	d.setPage(0, r, 0, page)
	if same, _ := d.setRoot(0, MakeRoot(512, 3)); same != r || d.Pages() != 1 {
		t.Error("the same root word lost its pages")
	}
	if other, _ := d.setRoot(0, MakeRoot(1024, 4)); other == r || d.Pages() != 0 {
		t.Error("another root word kept the pages")
	}
	d.setPage(0, r, 0, page) // a get that is late with the old root
	d.setPage(0, r, 0, page)
	if d.Pages() != 0 {
		t.Errorf("%d pages counted for a root that is gone", d.Pages())
	}
}

// Many gets fill and empty one Dir; the count of its pages stays true.
func TestDirConcurrent(t *testing.T) {
	d := NewDir(&View{Shards: 4})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			page := make([]byte, PageSize)
			for i := range 2000 {
				shard := uint16(i+g) % 4
				r, _ := d.setRoot(shard, MakeRoot(Place(512*(i%3)), 12))
				d.setPage(shard, r, i%8, page)
				if p := r.pages[i%8].Load(); p == nil || p[0] != 0 {
					t.Error("page not there")
				}
				if i%97 == 0 {
					d.Forget(shard)
				}
			}
		})
	}
	wg.Wait()
	d.ForgetAll()
	if d.Pages() != 0 {
		t.Errorf("%d pages after ForgetAll", d.Pages())
	}
}
