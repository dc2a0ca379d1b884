package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// Limits are what a server allows its clients, whoever they are. Zero fields take defaults.
type Limits struct {
	MaxSize  int           // bytes of a message; 8 MiB
	MaxDepth int           // messages in flight; 1024
	MaxTime  time.Duration // a test, its set-up included; 10 min
	MaxTests int           // at a time; 4
	Idle     time.Duration // a test in which nothing arrives, where the server can see that; 30 s
	Setup    time.Duration // from the connection to the Hello; 10 s
}

// fill sets the defaults.
func (l *Limits) fill() {
	if l.MaxSize <= 0 {
		l.MaxSize = 8 << 20
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = 1024
	}
	if l.MaxTime <= 0 {
		l.MaxTime = 10 * time.Minute
	}
	if l.MaxTests <= 0 {
		l.MaxTests = 4
	}
	if l.Idle <= 0 {
		l.Idle = 30 * time.Second
	}
	if l.Setup <= 0 {
		l.Setup = setupTime
	}
}

// maxReceives bounds the receives of one connection (perftest's rx-depth).
const maxReceives = 512

// A Test is what a server did for one client.
type Test struct {
	Remote   net.Addr
	Name     string // "read_lat"; empty if the client never got that far
	Size     int
	Messages uint64 // that the server has seen; 0 for READs, which it cannot see
	Took     time.Duration
	Err      error // why it did not end as it should
}

// A Server is the passive side of tests.
type Server struct {
	dev    rdma.Device
	l      rdma.Listener
	limits Limits
	onTest func(Test)
	tests  sync.WaitGroup
	slots  chan struct{}
}

// Listen makes a server on a device. onTest, if not nil, is called after each
// test, from any goroutine.
func Listen(ctx context.Context, dev rdma.Device, addr string, limits Limits, onTest func(Test)) (*Server, error) {
	limits.fill()
	l, err := dev.Listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	if onTest == nil {
		onTest = func(Test) {}
	}
	return &Server{dev: dev, l: l, limits: limits, onTest: onTest, slots: make(chan struct{}, limits.MaxTests)}, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.l.Addr() }

// Serve takes tests until ctx ends, which is no error, and closes the listener.
// It returns when the last test has released everything. Call it once.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	err := s.accept(ctx)
	closeErr := s.l.Close()
	cancel()
	s.tests.Wait()
	return errors.Join(err, closeErr)
}

// accept takes connection requests until ctx ends, and refuses those beyond the
// limit.
func (s *Server) accept(ctx context.Context) error {
	for {
		req, err := s.l.Accept(ctx)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = req.Reject(nil) // going anyway
			}
			return nil
		case err != nil:
			return err
		}
		select {
		case s.slots <- struct{}{}:
		default:
			s.reject(req, fmt.Sprintf("%d tests are running, no more are allowed at a time", s.limits.MaxTests))
			continue
		}
		s.tests.Go(func() {
			defer func() { <-s.slots }()
			s.serve(ctx, req)
		})
	}
}

// reject refuses a connection and says why. If that fails it is not reported.
func (s *Server) reject(req rdma.ConnRequest, reason string) {
	private := ready{Status: statusRefused, Reason: reason}.append(nil)
	_ = req.Reject(private[:min(len(private), s.dev.Attr().MaxAcceptPrivate)])
	s.onTest(Test{Remote: req.RemoteAddr(), Err: fmt.Errorf("refused: %s", reason)})
}

// serve is one connection from its beginning to its end.
func (s *Server) serve(ctx context.Context, req rdma.ConnRequest) {
	if _, err := body(req.PrivateData(), typeHello); err != nil {
		s.reject(req, err.Error())
		return
	}
	start := time.Now()
	t := Test{Remote: req.RemoteAddr()}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.MaxTime, fmt.Errorf("%w: a test may take %v", rdma.ErrDeadline, s.limits.MaxTime))
	defer cancel()
	e, err := newEnd(s.dev, controlSlots, maxReceives+2, defaultInline, true)
	if err != nil {
		s.reject(req, "no queue pair: "+err.Error())
		return
	}
	p := &passive{Server: s, end: e, test: &t}
	err = p.run(ctx, req)
	t.Err = errors.Join(err, e.close())
	t.Took = time.Since(start)
	s.onTest(t)
}
