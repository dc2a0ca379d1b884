package change

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/feature"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// What a node believes of the feature level of its cluster.
//
// The seat's poll has the level (poll.go), and so may that of any node that knows the cluster's secret. A level that is believed keeps older programs from
// the directory, and a node whose program does not read it stands down, so a false one would end nodes. Hence a poll only makes a node look. It believes, in this order:
//
//	its own replica of the meta group     what that has applied, a majority has agreed on
//	the other replicas                    the highest level that a majority of them holds, of those that the map in force has
//	all nodes of the map in force         likewise, if too few replicas answer: the map here may be so old that the meta group is elsewhere by now
//	both again, by a later map            if the node that asks has one: its meta group may be another one, or was made anew of what was left (recovermeta.go)
//
// It holds because one node, or any minority, cannot make a majority hold a level that nobody has agreed on. If a poll were believed, one node would end all others. For
// the map nodes trust each other (poll.go): one that has the others follow a false map could have them ask whom it likes.
//
// The question, and its answer, which is JSON, of which fields are only ever added:
//
//	┌kind┬ 0 ┐
//	└5   ┴7  ┘    kind: wire.QuestionLevel
//	{"level":1,"version":12}    version: of the meta group's state that the replica here has applied; 0: there is none, and the level is the one that the node has noted in NODE
//
// Programs that know no levels answer it with an error, and count as nodes of level 0.

const (
	kindLevel   = wire.QuestionLevel
	levelAnswer = 1 << 10 // bytes of an answer, at most
	// lookRest lies between two looks, whoever asks for one: a node that says what is not so keeps nobody busy.
	lookRest = 500 * time.Millisecond
	lookTime = 700 * time.Millisecond // for the answers; pollTime is longer
)

// A held is what a node answers.
type held struct {
	Level   feature.Level `json:"level"`
	Version uint64        `json:"version"`
}

// errUnconfirmed: a poll has a level that the meta group has not agreed on, as far as this node can see.
var errUnconfirmed = errors.New("change: the meta group has not confirmed the feature level")

// A look is how a node asks the others for the level. Its fields are for one look at a time, which has the token.
type look struct {
	token chan struct{} // capacity 1
	ended time.Time     // of the last look
	warn  time.Time     // when a level that was not confirmed was last told of
}

func (l *look) init() {
	l.token = make(chan struct{}, 1)
	l.token <- struct{}{}
}

// appendLevelQuestion appends the question.
func appendLevelQuestion(dst []byte) []byte { return append(dst, kindLevel, 0, 0, 0, 0, 0, 0, 0) }

// parseHeld reads an answer.
func parseHeld(b []byte) (h held, err error) {
	if len(b) > levelAnswer {
		return h, fmt.Errorf("%w: %d bytes about a feature level", cluster.ErrMalformed, len(b))
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return held{}, fmt.Errorf("%w: about a feature level: %w", cluster.ErrMalformed, err)
	}
	return h, nil
}

// A believer is a node, as it finds out which feature level its cluster has, and as it tells others.
type believer struct{ *Changer }

// tells answers a node that asks which level is held here. cluster.ErrMalformed.
func (c believer) tells(question []byte) ([]byte, error) {
	if !slices.Equal(question, appendLevelQuestion(nil)) {
		return nil, fmt.Errorf("%w: a question of kind %d has 8 bytes, of which all but the first are 0, and this one has %d", cluster.ErrMalformed, kindLevel, len(question))
	}
	return json.Marshal(c.holds())
}

// holds is the level that is held here.
func (c believer) holds() held {
	if s := c.meta.state(); s != nil {
		return held{s.Level, s.Version}
	}
	return held{Level: c.env.Levels.At()}
}

// told is what becomes of a level that a poll of a node has. nil: it is in force here, or a lower one than that, and the program reads what is in force. errUnconfirmed, *feature.UnreadError, those of the disk.
func (c believer) told(ctx context.Context, node string, said feature.Level) error {
	if said <= c.env.Levels.At() {
		return c.env.Levels.Raise(0)
	}
	if own := c.holds(); own.Version > 0 && own.Level >= said {
		return c.env.Levels.Raise(own.Level)
	}
	select {
	case <-c.look.token:
		defer func() { c.look.token <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if said <= c.env.Levels.At() { // the look before has found it
		return c.env.Levels.Raise(0)
	}
	if time.Since(c.look.ended) < lookRest {
		return fmt.Errorf("%w: level %d, and this node has looked a moment ago", errUnconfirmed, said)
	}
	found := c.lookAround(ctx)
	if found < said && c.learns(ctx, node) {
		found = c.lookAround(ctx)
	}
	c.look.ended = time.Now()
	// What was found counts although more was said: if not, a node that always says more would keep this one from the level that there is.
	if err := c.env.Levels.Raise(found); err != nil || found >= said {
		return err
	}
	if time.Since(c.look.warn) > time.Minute {
		c.look.warn = time.Now()
		c.env.Log.Warn(base.LogAlways, "another node says that the cluster is at a feature level that its meta group has not agreed on; it is not believed", "said", said, "agreed", found)
	}
	return fmt.Errorf("%w: level %d, and it holds %d", errUnconfirmed, said, found)
}

// learns asks the node that has said a level for a later map, and says whether it had one. The map counts by its version, as one that comes with a poll of level 0 does; what it changes here
// is whose word counts for the level. A node that has no map comes into a cluster in other ways.
func (c believer) learns(ctx context.Context, node string) bool {
	before := c.now.Load()
	if before == nil || node == c.env.Node {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if err := c.Learn(ctx, node); err != nil {
		c.env.Log.Info("the node that says a feature level gives no later shard map", "peer", node, "err", err)
	}
	return c.now.Load() != before
}

// lookAround asks the nodes of the map in force, and returns the level that is to be believed; 0, if too few answer.
func (c believer) lookAround(ctx context.Context) feature.Level {
	now := c.now.Load()
	if now == nil {
		return 0 // it has no replicas, so nothing is written here for others
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	told := map[string]held{c.env.Node: c.holds()}
	for i := range now.m.Nodes { // cluster.MaxNodes at most
		node := now.m.Nodes[i].ID
		if node == c.env.Node {
			continue
		}
		wg.Go(func() {
			answer, err := c.env.Ask(ctx, node, appendLevelQuestion(nil))
			if err != nil {
				return
			}
			if h, err := parseHeld(answer); err == nil {
				mu.Lock()
				told[node] = h
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	replicas, all := []string{}, []string{}
	for _, p := range now.d.Groups[metaGroup].Replicas {
		replicas = append(replicas, p.Node)
	}
	for i := range now.m.Nodes {
		all = append(all, now.m.Nodes[i].ID)
	}
	byReplicas := heldByMost(replicas, func(node string) feature.Level {
		if h := told[node]; h.Version > 0 {
			return h.Level
		}
		return 0
	})
	return max(byReplicas, heldByMost(all, func(node string) feature.Level { return told[node].Level }))
}

// heldByMost is the highest level that a majority of some nodes holds; who has said nothing holds level 0.
func heldByMost(nodes []string, of func(node string) feature.Level) feature.Level {
	levels := make([]feature.Level, 0, len(nodes))
	for _, n := range nodes {
		levels = append(levels, of(n))
	}
	if len(levels) == 0 {
		return 0
	}
	slices.Sort(levels)
	return levels[(len(levels)-1)/2]
}

// A node that was started a moment ago, or again, is waited for until gossip has told the seat of it, which takes some tenths of a second as a rule: whoever has seen
// it get ready need not ask twice.
const (
	unheardFor  = 3 * time.Second
	unheardRest = 50 * time.Millisecond
)

// rests waits for a while; false: the context has ended.
func rests(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
