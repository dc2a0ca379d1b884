package change

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/seat"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// The question that a node asks all that answer before it makes the meta group anew (recovermeta.go), so that no two nodes make it that reach a node in common:
//
//	┌kind┬ 0 ┬map version┬meta┐
//	└3   ┴7  ┴8          ┴8   ┘    of the map that the new meta group begins with, and its number (cluster.Map.Life)
//
// No answer text: the node promises for anewFor that it makes none itself, and that it promises this to nobody else. A text: why it does not. The promise is in memory alone: what it is
// for is that one operator, or two, give the command twice at about the same time. What was made before is seen by the map.

const (
	kindAnew = wire.QuestionAnew
	anewHead = 24
	// anewFor is longer than the question and the writing of the map take, and short enough for an operator whose first choice died meanwhile.
	anewFor = 30 * time.Second
	// maxWhyNot bounds the text of another node.
	maxWhyNot = 1 << 10
)

// An anew is what a node has promised.
type anew struct {
	mu    sync.Mutex
	makes bool      // this node makes it now
	node  string    // to whom it was promised last; "": nobody
	life  uint64    // of the meta group that it makes
	until time.Time // likewise
}

// begin says that this node makes it; else why it must not.
func (a *anew) begin(self string) (why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.makes:
		return fmt.Sprintf("node %q makes the meta group anew already: wait for that", self)
	case a.node != "" && time.Now().Before(a.until):
		return fmt.Sprintf("node %q makes the meta group anew, and node %q has promised to make none beside it: ask that one, or again in %v", a.node, self, anewFor)
	}
	a.makes = true
	return ""
}

func (a *anew) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.makes = false
}

// appendAnew appends the question.
func appendAnew(dst []byte, m *cluster.Map) []byte {
	dst = append(dst, kindAnew, 0, 0, 0, 0, 0, 0, 0)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, m.Version), m.Life())
}

// parseAnew reads it. ErrMalformed.
func parseAnew(b []byte) (version, life uint64, err error) {
	if len(b) != anewHead || b[0] != kindAnew || slices.ContainsFunc(b[1:8], func(x byte) bool { return x != 0 }) {
		return 0, 0, fmt.Errorf("%w: a question of %d bytes, of a kind that this node does not know", cluster.ErrMalformed, len(b))
	}
	version, life = binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	if life == 0 {
		return 0, 0, fmt.Errorf("%w: a meta group that was made anew without a number of its own", cluster.ErrMalformed)
	}
	return version, life, nil
}

// promise answers another node that is about to make the meta group anew. cluster.ErrMalformed.
func promise(c *Changer, node string, question []byte) ([]byte, error) {
	version, life, err := parseAnew(question)
	if err != nil {
		return nil, err
	}
	now := c.now.Load()
	if now != nil && now.m.Version >= version {
		return fmt.Appendf(nil, "node %q has shard map %d already: the meta group was made anew before", c.env.Node, now.m.Version), nil
	}
	a := &c.anew
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.makes:
		return fmt.Appendf(nil, "node %q makes it itself at the moment: ask one of the two alone", c.env.Node), nil
	case a.node != "" && (a.node != node || a.life != life) && time.Now().Before(a.until):
		return fmt.Appendf(nil, "node %q has promised node %q to make none beside it: ask that one, or again in %v", c.env.Node, a.node, anewFor), nil
	}
	a.node, a.life, a.until = node, life, time.Now().Add(anewFor)
	return nil, nil
}

// promised asks all nodes that have answered lately. nil: each of them has promised.
func promised(ctx context.Context, c *Changer, m *cluster.Map) error {
	ctx, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for node := range c.lead.now() {
		if node == c.env.Node {
			continue
		}
		wg.Go(func() {
			why, err := c.env.Ask(ctx, node, appendAnew(nil, m))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("%w: node %q answers, and does not promise to make no meta group itself: %w", seat.ErrRequest, node, err))
			case len(why) > 0:
				errs = append(errs, fmt.Errorf("%w: %s", seat.ErrRequest, wire.CleanText(why[:min(len(why), maxWhyNot)])))
			}
		})
	}
	wg.Wait()
	if len(errs) == 0 {
		return nil
	}
	return errs[0] // one is enough, in one line
}

// Two meta groups of one cluster: two nodes were told to make it anew, and did not reach each other (recovermeta.go). Nobody can say which of them is the right one but the operator, so whoever meets the other
// one says so, and stands still: it follows no map of that one, makes no change as a seat, does no step of a group, and refuses what operators ask for. Keys are served as before, by each group's own log.
// It goes on when nothing of the other one was heard for twinFor.

// twinFor is several times as long as two polls of a seat are apart.
const twinFor = 10 * time.Second

// A twin is what is known of another meta group.
type twin struct {
	mu    sync.Mutex
	text  string    // what operators are told; "": none was met
	heard time.Time // when it was heard of last
}

// met notes that a node goes by a map of another meta group. Life is that one's number; 0: it is not known, or it is the first one.
func met(c *Changer, node string, life uint64) {
	now := c.now.Load()
	if now == nil {
		return
	}
	text := fmt.Sprintf("%v: node %q goes by the one of number %016x, and node %q by the one of number %016x: nothing is changed until the nodes of one of them are stopped (docs/failures.md)",
		cluster.ErrTwoMetas, node, life, c.env.Node, now.m.Life())
	c.twin.mu.Lock()
	again := c.twin.text == text && time.Since(c.twin.heard) < twinFor
	c.twin.text, c.twin.heard = text, time.Now()
	c.twin.mu.Unlock()
	if !again {
		c.env.Log.Error(base.LogAlways, text)
	}
}

// standsStill says why nothing may be changed now; "": it may.
func (t *twin) standsStill() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text == "" || time.Since(t.heard) >= twinFor {
		return ""
	}
	return t.text
}
