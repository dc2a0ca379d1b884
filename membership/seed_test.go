package membership

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// TestSeedThatComesLater: nodes that are started together do not listen at the same
// time. A seed without a listener is tried again soon, not after the interval for
// seeds, which is 7.5 s at least with this profile.
func TestSeedThatComesLater(t *testing.T) {
	n := newMemNet()
	const seed = "10.9.9.9:7946"
	begun := time.Now()
	early := launch(t, n, "early", func(c *Config) { c.Profile, c.Join = WAN, []string{seed} })
	eventually(t, early.Members, "the seed has failed", func() bool { return early.Stats().JoinErrors[seed] != "" })
	late := launch(t, n, "late", func(c *Config) { c.Profile, c.Transport = WAN, n.listen(seed) })
	listens := time.Now()
	eventually(t, late.Members, "the seed knows who came first", func() bool { return stateOf(late.Members, "early") == cluster.Alive })
	if took := time.Since(listens); took > 7*time.Second && listens.Sub(begun) < hasteFor/2 {
		t.Errorf("the seed was tried again %v after it had begun to listen", took)
	}
}
