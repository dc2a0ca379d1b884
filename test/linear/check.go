package linear

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A Checker judges objects as they are finished, in goroutines of its own, and
// counts. What fails is saved. Fields are set before the first Add.
type Checker struct {
	Name  string        // of the run, for the names of files: "iwarp"
	Seed  uint64        // of the run
	Dir   string        // where failing histories go; "" saves none
	Slack Slack         // of deadlines
	Limit time.Duration // for one object; 0 means a minute
	Jobs  int           // objects judged at a time; 0 means 1

	start sync.Once
	queue chan *Object
	wg    sync.WaitGroup

	mu       sync.Mutex
	sum      Summary
	failures []string
}

// A Summary counts what was judged.
type Summary struct {
	Ops       int              // operations
	Objects   int              // histories
	Keys      int              // keys of all of them
	Unknown   int              // operations whose outcome is not known
	Refused   int              // conditional writes that were refused
	Slowest   time.Duration    // for one object
	Longest   time.Duration    // an operation took that had an answer
	ByKind    [OpBatch + 1]int // operations
	Failures  int              // histories that are wrong or took too long
	Undecided int              // of those, the ones that took too long
}

// Add hands an object over to be judged; it must not be used any more. It waits
// while too many wait already.
func (c *Checker) Add(o *Object) {
	c.start.Do(func() {
		c.queue = make(chan *Object, 256)
		for range max(1, c.Jobs) {
			c.wg.Go(func() {
				for o := range c.queue {
					c.judge(o)
				}
			})
		}
	})
	c.queue <- o
}

// Close waits until all is judged. It is called once, after the last Add.
func (c *Checker) Close() (Summary, []string) {
	if c.queue != nil {
		close(c.queue)
		c.wg.Wait()
	}
	return c.sum, c.failures
}

func (c *Checker) judge(o *Object) {
	limit := c.Limit
	if limit == 0 {
		limit = time.Minute
	}
	res := o.Check(c.Slack, limit)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count(o, res)
	if res.Verdict == porcupine.Ok {
		return
	}
	c.sum.Failures++
	if res.Verdict == porcupine.Unknown {
		c.sum.Undecided++
	}
	if len(c.failures) >= 10 {
		return // the first ones tell enough
	}
	text := fmt.Sprintf("object %d, %d operations: %v after %v (seed %d)", o.ID, len(o.Ops), res.Verdict, res.Took.Round(time.Millisecond), c.Seed)
	if res.Verdict == porcupine.Illegal {
		text += "\n  " + o.Explain(c.Slack)
	}
	if c.Dir != "" {
		path, err := Save(c.Dir, c.Name, c.Seed, c.Slack, o)
		if err != nil {
			text += fmt.Sprintf("; it could not be saved: %v", err)
		} else {
			text += fmt.Sprintf("\n  history %s, picture beside it\n  judge it again: go test ./test/linear -run TestReplay -replay %s", path, path)
		}
	}
	c.failures = append(c.failures, text)
}

func (c *Checker) count(o *Object, res Result) {
	s := &c.sum
	s.Objects++
	s.Keys += o.Keys
	s.Ops += len(o.Ops)
	s.Slowest = max(s.Slowest, res.Took)
	for _, op := range o.Ops {
		s.ByKind[op.In.Op]++
		if op.Out.Unknown {
			s.Unknown++
		} else {
			s.Longest = max(s.Longest, time.Duration(op.End-op.Begin))
		}
		if op.Out.Refused {
			s.Refused++
		}
	}
}

// A savedHistory is the file of a failing history.
type savedHistory struct {
	Name   string  `json:"name"`
	Seed   uint64  `json:"seed"`
	Slack  Slack   `json:"slack"`
	Object *Object `json:"object"`
}

// pictureTime bounds the search for what the picture of a history shows.
const pictureTime = time.Minute

// Save writes a history as JSON and as a picture into a directory, and returns
// the path of the first.
func Save(dir, name string, seed uint64, slack Slack, o *Object) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	base := filepath.Join(dir, fmt.Sprintf("%s-%d-object-%d", name, seed, o.ID))
	data, err := json.Marshal(savedHistory{Name: name, Seed: seed, Slack: slack, Object: o})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(base+".json", data, 0o644); err != nil {
		return "", err
	}
	m := newModel(slack)
	_, info := porcupine.CheckOperationsVerbose(m, o.operations(), pictureTime)
	return base + ".json", porcupine.VisualizePath(m, info, base+".html")
}

// Load reads a saved history back.
func Load(path string) (*Object, Slack, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, Slack{}, err
	}
	var h savedHistory
	if err := json.Unmarshal(data, &h); err != nil {
		return nil, Slack{}, fmt.Errorf("%s: %w", path, err)
	}
	if h.Object == nil {
		return nil, Slack{}, fmt.Errorf("%s has no history", path)
	}
	for _, op := range h.Object.Ops {
		if op == nil || op.In.Op < OpGet || op.In.Op > OpBatch || op.In.Key < 0 || op.In.Key >= MaxKeys {
			return nil, Slack{}, fmt.Errorf("%s has an operation that is none", path)
		}
		for _, p := range op.In.Parts {
			if p.Key < 0 || p.Key >= MaxKeys {
				return nil, Slack{}, fmt.Errorf("%s has a batch with a key that is none", path)
			}
		}
	}
	return h.Object, h.Slack, nil
}
