package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// TestIntake: snapshots of many senders, some of which give up while they wait, never have more places than there are, nor one sender more than it may
// have; in the end all places are free.
func TestIntake(t *testing.T) {
	var i intake
	var mu sync.Mutex
	now, all, waited, gaveUp := map[string]int{}, 0, 0, 0
	count := func(node string, n int) {
		mu.Lock()
		defer mu.Unlock()
		now[node] += n
		all += n
		if all > MaxReceiving || now[node] > MaxOfSender {
			t.Errorf("%d places are taken, %d of them by %s", all, now[node], node)
		}
	}
	var group sync.WaitGroup
	for n := range 5 * 4 {
		node := fmt.Sprint("n", n%5)
		group.Go(func() {
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(200))*time.Microsecond, cancel)
				}
				switch err := i.enter(ctx, node, time.Hour); {
				case err == nil:
					count(node, 1)
					time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
					count(node, -1)
					i.leave(node)
				case !errors.Is(err, context.Canceled):
					t.Error(err)
				default:
					mu.Lock()
					gaveUp++
					mu.Unlock()
				}
				cancel()
				mu.Lock()
				waited++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if i.all != 0 || len(i.taken) != 0 || len(i.waiting) != 0 {
		t.Errorf("%d places are taken (%v), %d snapshots wait, and all are over", i.all, i.taken, len(i.waiting))
	}
	t.Logf("%d snapshots, %d gave up", waited, gaveUp)
}

// TestIntakeInTurn: who came first has the next place, but for a sender that has all that it may have, and nobody waits for longer than he said.
func TestIntakeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var i intake
		var mu sync.Mutex // guards got
		var got []string
		enter := func(node string) {
			go func() {
				if err := i.enter(t.Context(), node, 30*time.Second); errors.Is(err, consensus.ErrBusy) {
					node = "late " + node
				} else if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, node)
			}()
			synctest.Wait()
		}
		holds := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("places went to %v, and not to %v", got, want)
			}
		}
		for _, node := range []string{"a", "a", "a", "b", "c", "d", "b"} {
			enter(node)
		}
		holds("a", "a", "b", "c")
		i.leave("b")
		holds("a", "a", "b", "c", "d")
		i.leave("a")
		holds("a", "a", "b", "c", "d", "a")
		time.Sleep(29 * time.Second)
		holds("a", "a", "b", "c", "d", "a")
		time.Sleep(2 * time.Second)
		holds("a", "a", "b", "c", "d", "a", "late b")
		i.leave("c")
		enter("b")
		holds("a", "a", "b", "c", "d", "a", "late b", "b")
	})
}
