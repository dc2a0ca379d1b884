package region

import (
	"testing"

	"pgregory.net/rapid"
)

// Against a plain list of booleans: what Take returns is free, aligned and the
// first that fits, and it fails only when nothing fits.
func TestExtentsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.IntRange(1, 300).Draw(t, "units")
		e := NewExtents(units)
		used := make([]bool, units)
		type run struct{ start, n int }
		var runs []run
		for range rapid.IntRange(1, 80).Draw(t, "ops") {
			if len(runs) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(runs)-1).Draw(t, "which")
				r := runs[i]
				runs = append(runs[:i], runs[i+1:]...)
				e.Release(r.start, r.n)
				for u := r.start; u < r.start+r.n; u++ {
					used[u] = false
				}
				continue
			}
			n := rapid.IntRange(1, 70).Draw(t, "n")
			align := rapid.SampledFrom([]int{1, 1, 16}).Draw(t, "align")
			if align > 1 {
				n = 16
			}
			got, ok := e.Take(n, align)
			want, fits := firstFit(used, n, align)
			if ok != fits || ok && got != want {
				t.Fatalf("Take(%d, %d) = %d, %v; want %d, %v", n, align, got, ok, want, fits)
			}
			if ok {
				runs = append(runs, run{got, n})
				for u := got; u < got+n; u++ {
					used[u] = true
				}
			}
		}
		free := 0
		for _, u := range used {
			if !u {
				free++
			}
		}
		if e.Free() != free {
			t.Fatalf("Free() = %d, want %d", e.Free(), free)
		}
	})
}

func firstFit(used []bool, n, align int) (int, bool) {
	for start := 0; start+n <= len(used); start += align {
		ok := true
		for u := start; u < start+n && ok; u++ {
			ok = !used[u]
		}
		if ok {
			return start, true
		}
	}
	return 0, false
}

func TestExtentsRefuseNonsense(t *testing.T) {
	for name, f := range map[string]func(*Extents){
		"double release": func(e *Extents) { e.Take(4, 1); e.Release(0, 4); e.Release(0, 4) },
		"release beyond": func(e *Extents) { e.Release(98, 4) },
		"take nothing":   func(e *Extents) { e.Take(0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f(NewExtents(100))
		})
	}
}

func TestIndexMemory(t *testing.T) {
	tab := newTestTable(t, nil)
	m := tab.Index()
	base := m.Stats()
	p, mem, err := m.Alloc(7)
	if err != nil || len(mem) != 7*4096 {
		t.Fatal(err)
	}
	if got := tab.Bytes(p, 8); &got[0] != &mem[0] {
		t.Error("place and memory differ")
	}
	m.Retired(7)
	if s := m.Stats(); s.InUse != base.InUse || s.Retired != 7*4096 || s.Free != base.Free-7*4096 {
		t.Errorf("retired: %+v, before %+v", s, base)
	}
	m.FreeRetired(p, 7)
	if s := m.Stats(); s != base {
		t.Errorf("after all: %+v, want %+v", s, base)
	}
	// More than an index region holds makes a larger one.
	p, _, err = m.Alloc(600)
	if err != nil {
		t.Fatal(err)
	}
	if r, off, ok := tab.Locate(p); !ok || r.Kind != 1 || r.Length != 3*mib || off != 4096 {
		t.Errorf("600 pages at offset %d of %+v", off, r)
	}
	if _, _, err := m.Alloc(1 << 20); err == nil {
		t.Error("4 GiB of index memory under a limit of 16 MiB")
	}
}
