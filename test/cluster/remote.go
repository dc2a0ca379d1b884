package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// A station in another process is asked by lines of JSON: one question, one answer,
// one at a time.
type question struct {
	Op    string // well, lost, tallies, finish
	Nodes []string
	Limit time.Duration // for the answer
}

type reply struct {
	Err     string
	Tallies map[string]Tally
	Report  Report
}

// Serve answers questions about a station until the other end has no more.
func Serve(ctx context.Context, s Station, in io.Reader, out io.Writer) error {
	enc := json.NewEncoder(out)
	for lines := json.NewDecoder(in); ; {
		var q question
		if err := lines.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var r reply
		one, cancel := context.WithTimeout(ctx, q.Limit)
		err := r.answer(one, s, &q)
		cancel()
		if err != nil {
			r.Err = err.Error()
		}
		if err := enc.Encode(&r); err != nil {
			return err
		}
	}
}

func (r *reply) answer(ctx context.Context, s Station, q *question) (err error) {
	switch q.Op {
	case "well":
		err = s.Well(ctx, q.Nodes...)
	case "lost":
		for _, n := range q.Nodes {
			err = errors.Join(err, s.Lost(ctx, n))
		}
	case "tallies":
		r.Tallies, err = s.Tallies(ctx)
	case "finish":
		r.Report, err = s.Finish(ctx)
	default:
		err = fmt.Errorf("there is no question %q", q.Op)
	}
	return err
}

// Remote is a station at the other end of pipes, where Serve runs. Reading from the
// station ends when its process does.
func Remote(to io.Writer, from io.Reader) Station {
	return &remote{to: json.NewEncoder(to), from: bufio.NewReader(from)}
}

type remote struct {
	mu   sync.Mutex
	to   *json.Encoder
	from *bufio.Reader
}

// ask asks one question. The station keeps to the limit; it is the process's
// starter that bounds the wait for one that does not answer at all.
func (s *remote) ask(ctx context.Context, q question) (reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.Limit = time.Minute
	if d, ok := ctx.Deadline(); ok {
		q.Limit = time.Until(d)
	}
	var r reply
	if err := s.to.Encode(&q); err != nil {
		return r, err
	}
	line, err := s.from.ReadBytes('\n')
	if err != nil {
		return r, fmt.Errorf("the station does not answer: %w", err)
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("the station says %.200q: %w", line, err)
	}
	if r.Err != "" {
		return r, errors.New(r.Err)
	}
	return r, nil
}

func (s *remote) Well(ctx context.Context, nodes ...string) error {
	_, err := s.ask(ctx, question{Op: "well", Nodes: nodes})
	return err
}

func (s *remote) Lost(ctx context.Context, node string) error {
	_, err := s.ask(ctx, question{Op: "lost", Nodes: []string{node}})
	return err
}

func (s *remote) Tallies(ctx context.Context) (map[string]Tally, error) {
	r, err := s.ask(ctx, question{Op: "tallies"})
	return r.Tallies, err
}

func (s *remote) Finish(ctx context.Context) (Report, error) {
	r, err := s.ask(ctx, question{Op: "finish"})
	return r.Report, err
}
