package membership

import (
	"io"
	"testing"
	"time"
)

// relay passes streams that come to it on to a node; it holds them until hold is
// closed. asked is sent to for each of them.
func relay(t *testing.T, n *memNet, to *node, hold <-chan struct{}) (at *memEnd, asked chan struct{}) {
	t.Helper()
	at, asked = n.end(), make(chan struct{}, 64)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		for {
			select {
			case <-over:
				return
			case in := <-at.streams:
				select {
				case asked <- struct{}{}:
				default:
				}
				go func() {
					defer in.Close()
					select {
					case <-hold:
					case <-over:
						return
					}
					out, err := at.DialTimeout(string(to.end.addr), patience)
					if err != nil {
						return
					}
					defer out.Close()
					_, _ = io.Copy(out, in)
				}()
			}
		}
	}()
	return at, asked
}

// patientJudge starts a judgement that takes as long as it takes.
func patientJudge(x *node, c claim) (done chan struct{}) {
	x.time.prove = patience
	done = make(chan struct{})
	go func() {
		defer close(done)
		x.referee.judge(c)
	}()
	return done
}

// TestHeldQuestion: an attacker without the secret claims a node's id, keeps the
// question that it is asked until the node has started again, and passes it on
// unchanged. Two lives of the node have then answered, one after the other: there
// were never two at once, and neither ends.
func TestHeldQuestion(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	seesAll(t, a, b)
	release := make(chan struct{})
	rogue, asked := relay(t, n, b, release)
	judged := patientJudge(a, claim{node: "b", known: string(b.end.addr), other: string(rogue.addr)})
	await(t, asked, "the claimant is asked")
	eventually(t, a.Members, "the first life has answered", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.referee.probes) == 1
	})
	_ = b.Close()
	n.mu.Lock()
	end := n.endAtLocked(string(b.end.addr))
	n.mu.Unlock()
	again := launch(t, n, "b", func(c *Config) { joining(a)(c); c.Transport, c.Self.Incarnation = end, 99 })
	close(release)
	await(t, judged, "the claim is judged")
	for _, c := range a.Stats().Open {
		if c.Proved {
			t.Errorf("two lives, one after the other, count as two at once: %+v", c)
		}
	}
	if err := again.Err(); err != nil {
		t.Errorf("a node is sent away by somebody without the secret: %v", err)
	}
}

// TestRelayAtOnce: the attacker passes the question on at once. There is one life,
// and it is told that another node claims its id.
func TestRelayAtOnce(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	seesAll(t, a, b)
	free := make(chan struct{})
	close(free)
	rogue, _ := relay(t, n, b, free)
	await(t, patientJudge(a, claim{node: "b", known: string(b.end.addr), other: string(rogue.addr)}), "the claim is judged")
	b.time.prove = patience
	b.referee.judgeOwn(claim{node: "b", known: string(b.end.addr), other: string(rogue.addr)})
	for _, x := range []*node{a, b} {
		open := x.Stats().Open
		if len(open) != 1 || open[0].Proved || open[0].Node != "b" || len(open[0].Addrs) != 1 || open[0].Addrs[0] != string(rogue.addr) {
			t.Errorf("%s tells %+v, want the claim at %s", x.cfg.NodeID, open, rogue.addr)
		}
		if err := x.Err(); err != nil {
			t.Error(err)
		}
	}
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not after %v", what, patience)
	}
}
