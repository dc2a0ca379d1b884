package dirty

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestViewsBesideWrites: while one goroutine notes and leaves under a lock, others take views
// under it and read them without. Key i is written in rounds: version round*keys+i+1. So what
// each view must show follows from the newest version and the mark alone.
func TestViewsBesideWrites(t *testing.T) {
	const (
		keys    = 1500
		readers = 4
		total   = 24 * keys
	)
	n := rand.Uint64()
	t.Logf("seed %d", n)
	var (
		mu   sync.Mutex
		s    Set
		last layout.Version
		over = make(chan struct{})
		wg   sync.WaitGroup
	)
	check := func(view View, newest, clean layout.Version, rnd *rand.Rand) error {
		from := rnd.IntN(keys)
		it := view.Keys(fmt.Appendf(nil, "%06d", from), nil)
		for i := from; i < keys; i++ {
			if newest < layout.Version(i)+1 {
				continue
			}
			v := (newest-layout.Version(i)-1)/keys*keys + layout.Version(i) + 1
			if v <= clean {
				continue
			}
			key := fmt.Sprintf("%06d", i)
			if !it.Next() || string(it.Key()) != key || it.Entry() != entryOf(v) {
				return fmt.Errorf("at %v, clean %v: got %q %+v, want %q %+v", newest, clean, it.Key(), it.Entry(), key, entryOf(v))
			}
		}
		if it.Next() {
			return fmt.Errorf("at %v, clean %v: %q is too many", newest, clean, it.Key())
		}
		return nil
	}
	for i := range readers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(n, uint64(i)))
			for {
				mu.Lock()
				view, newest, clean := s.View(), last, s.Clean()
				mu.Unlock()
				for range 2 { // the second time it is sorted, and the set has changed
					if err := check(view, newest, clean, rnd); err != nil {
						t.Error(err)
						return
					}
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	rnd := rand.New(rand.NewPCG(n, readers))
	var b []byte
	for last < total {
		mu.Lock()
		for range rnd.IntN(300) {
			last++
			b = fmt.Appendf(b[:0], "%06d", (last-1)%keys)
			s.Note(hashOf(b), b, entryOf(last))
		}
		if rnd.IntN(8) == 0 {
			s.Leave(s.Clean()+layout.Version(rnd.Uint64N(uint64(last-s.Clean())+1)), nil)
		}
		mu.Unlock()
	}
	close(over)
	wg.Wait()
}
