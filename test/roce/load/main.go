// Command load keeps a client busy while a test breaks things, and reports the
// outcome of its calls. It is the inner half of the fault tests in test/roce:
// they run it in one guest, the server in another, and cut, pause and kill from
// outside.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// An Event is a change: from now on calls of this kind succeed, or fail.
type Event struct {
	Op   string  `json:"op"` // get, put
	OK   bool    `json:"ok"`
	At   float64 `json:"at"`   // seconds since the start
	Took float64 `json:"took"` // seconds, of the call that tells
	Err  string  `json:"err,omitempty"`
}

// A Summary is the result of all calls of one kind.
type Summary struct {
	Op       string         `json:"op"`
	Calls    int            `json:"calls"`
	Failed   int            `json:"failed"`
	Worst    float64        `json:"worst"`   // seconds, the longest call
	Untyped  []string       `json:"untyped"` // errors of no class that a caller may rely on
	Wrong    []string       `json:"wrong"`   // answers that are not true
	Classes  map[string]int `json:"classes"`
	Connects uint64         `json:"connects"`
	Done     bool           `json:"done"`
}

func main() {
	server := flag.String("server", "", "HOST:PORT")
	fabric := flag.String("fabric", "verbs", "verbs or iwarp")
	deadline := flag.Duration("deadline", time.Second, "of each call")
	getters := flag.Int("getters", 2, "callers that get")
	pause := flag.Duration("pause", 2*time.Millisecond, "of each caller between two calls")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *server, *fabric, *deadline, *pause, *getters); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

const keys = 256

func key(i int) []byte { return fmt.Appendf(nil, "key %03d", i%keys) }

// value is what stands under a key: only the putter's own keys change.
func value(i int) string { return strings.Repeat(fmt.Sprintf("%03d.", i%keys), 16) }

func run(in io.Reader, out io.Writer, server, fabric string, deadline, pause time.Duration, getters int) error {
	var f rdma.Fabric = verbs.New(verbs.Options{})
	if fabric == "iwarp" {
		f = iwarp.New(iwarp.Options{})
	}
	c, err := client.Dial(context.Background(), client.Config{Servers: []string{server}, Fabrics: []rdma.Fabric{f}, Timeout: 20 * time.Second})
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range keys {
		if err := c.Put(context.Background(), key(i), []byte(value(i))); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	p := &printer{out: json.NewEncoder(out), start: time.Now()}
	gets, puts := newRecord(p, "get", deadline), newRecord(p, "put", deadline)
	for g := range getters {
		wg.Go(func() {
			for i := g; ctx.Err() == nil; i++ {
				gets.call(func(ctx context.Context) error {
					v, err := c.Get(ctx, key(i))
					if err == nil && string(v) != value(i) {
						return fmt.Errorf("%w: key %d holds %q", errWrong, i%keys, v)
					}
					return err
				})
				time.Sleep(pause)
			}
		})
	}
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			puts.call(func(ctx context.Context) error {
				return c.Put(ctx, fmt.Appendf(nil, "put %d", n%16), fmt.Appendf(nil, "%d", n))
			})
			time.Sleep(pause)
		}
	})
	_, _ = io.Copy(io.Discard, bufio.NewReader(in)) // until it is closed
	stop()
	wg.Wait()
	for _, r := range []*record{gets, puts} {
		r.sum.Connects, r.sum.Done = c.Counters().Connects, true
		p.print(r.sum)
	}
	return nil
}

var errWrong = errors.New("wrong answer")

// A printer writes lines. It is safe for concurrent use.
type printer struct {
	mu    sync.Mutex
	out   *json.Encoder
	start time.Time
}

func (p *printer) print(v any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(v)
}

// A record is the books of one kind of call. It is safe for concurrent use.
type record struct {
	p        *printer
	deadline time.Duration

	mu    sync.Mutex
	state int // 0 unknown, 1 succeeds, 2 fails
	sum   Summary
}

func newRecord(p *printer, op string, deadline time.Duration) *record {
	return &record{p: p, deadline: deadline, sum: Summary{Op: op, Classes: map[string]int{}}}
}

// call makes one call, under the deadline, and books it.
func (r *record) call(f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.deadline)
	begun := time.Now()
	err := f(ctx)
	took := time.Since(begun).Seconds()
	cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Calls++
	r.sum.Worst = max(r.sum.Worst, took)
	state := 1
	if err != nil {
		state = 2
		r.sum.Failed++
		class := classOf(err)
		r.sum.Classes[class]++
		switch {
		case class == "wrong" && len(r.sum.Wrong) < 10:
			r.sum.Wrong = append(r.sum.Wrong, err.Error())
		case class == "" && len(r.sum.Untyped) < 10:
			r.sum.Untyped = append(r.sum.Untyped, err.Error())
		}
	}
	if state != r.state {
		r.state = state
		e := Event{Op: r.sum.Op, OK: err == nil, At: time.Since(r.p.start).Seconds(), Took: took}
		if err != nil {
			e.Err = err.Error()
		}
		r.p.print(e)
	}
}

// classOf is the class of an error that a caller may rely on; "" if it has none.
func classOf(err error) string {
	switch {
	case errors.Is(err, errWrong), errors.Is(err, client.ErrNotFound):
		return "wrong" // the keys are all there
	case errors.Is(err, client.ErrOutcomeUnknown):
		return "outcome unknown"
	case errors.Is(err, client.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, client.ErrOverloaded):
		return "overloaded"
	}
	return ""
}
