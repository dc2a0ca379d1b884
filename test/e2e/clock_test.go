package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
)

var clockKillsFlag = flag.Int("clock-kills", 6, "cycles of the test of the clock after kill -9")

// TestKilledAgainAndAgain kills the server in a loop, as a supervisor that
// starts it again meets it. However often that is, the server's time is at most
// 6 s ahead of the wall clock, and a key lives for all but 6 s of its time.
func TestKilledAgainAndAgain(t *testing.T) {
	const most = 6 * time.Second
	kills := *clockKillsFlag
	if testing.Short() {
		kills = min(kills, 3)
	}
	// Were each kill to take 6 s of it, the last ones would find it gone.
	ttl := time.Duration(kills)*3*time.Second + most
	dir := t.TempDir()
	var put time.Time
	worst := time.Duration(0)
	for kill := range kills + 1 {
		n := startNode(t, dir)
		c := dial(t, n)
		if kill == 0 {
			put = time.Now()
			if _, err := c.PutWith(t.Context(), []byte("k"), []byte("v"), client.PutOptions{TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		all, err := admin.Of(c).Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var server struct {
			Store struct {
				ClockAhead *time.Duration `json:"clock_ahead_ns"`
			} `json:"store"`
		}
		if err := json.Unmarshal(all.Server, &server); err != nil || server.Store.ClockAhead == nil {
			t.Fatalf("no store.clock_ahead_ns in the statistics: %v", err)
		}
		ahead := *server.Store.ClockAhead
		worst = max(worst, ahead)
		if ahead > most {
			t.Fatalf("after %d kills: the server's time is %v ahead", kill, ahead)
		}
		_, err = c.Get(t.Context(), []byte("k"))
		if lived := time.Since(put); errors.Is(err, client.ErrNotFound) && lived < ttl-most {
			t.Fatalf("after %d kills: a key of %v is gone after %v", kill, ttl, lived)
		} else if err != nil && !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err)
		}
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills in %v: at most %v ahead", kills, time.Since(put).Round(time.Millisecond), worst)
}
