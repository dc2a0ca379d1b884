package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A scene is one way to fail.
type scene struct {
	name, title string
	play        func(ctx context.Context, s *stage) error
}

var scenes = []scene{
	{"rnr", "a SEND meets no posted receive", receiverNotReady},
	{"flush", "work is outstanding when the queue pair dies", flushed},
	{"access", "a READ that the server's card refuses", accessRefused},
	{"length", "a message is longer than its receive", tooLong},
	{"local", "a work request names memory that is not ours", localFault},
	{"gone", "the peer is gone without a word", peerGone},
	{"events", "asynchronous events: what belongs to no work request", asyncEvents},
}

func sceneNames() (names []string) {
	for _, s := range scenes {
		names = append(names, s.name)
	}
	return names
}

// readable is the right that most scenes give the client.
const readable = rdma.AccessRemoteRead

// receiverNotReady: RoCE and InfiniBand answer "receiver not ready" (RNR), and
// the sender's card tries again, rnr_retry times. iWARP knows no such answer.
func receiverNotReady(ctx context.Context, s *stage) error {
	if err := s.connect(ctx, options{receives: 0}); err != nil {
		return err
	}
	s.note("the server has posted no receive, the client does not try again")
	if err := s.client().send(1, receiveSize); err != nil {
		return err
	}
	s.await(ctx, "client", "SEND", 1)
	s.states(ctx)

	if s.retriesRNR() {
		if err := s.connect(ctx, options{receives: 0, patient: true}); err != nil {
			return err
		}
		s.note("again no receive; this time the card tries on, and the server posts one 50 ms later")
		if err := s.client().send(1, receiveSize); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond) // the scene's point, not a synchronisation
		if err := s.server().postRecv(1, receiveSize); err != nil {
			return err
		}
		s.await(ctx, "client", "SEND", 1)
		s.await(ctx, "server", "RECV", 1)
	}
	s.note("the remedy: post receives before the peer can send, and count them (credits)")
	return s.recover(ctx)
}

// flushed: a queue pair in ERR does nothing any more, and gives everything back.
func flushed(ctx context.Context, s *stage) error {
	if err := s.connect(ctx, options{receives: 3}); err != nil {
		return err
	}
	s.note("the server has posted three receives; then its queue pair goes to ERR")
	if err := s.server().abort(); err != nil {
		return err
	}
	for id := range uint64(3) {
		s.await(ctx, "server", "RECV", id+1)
	}
	s.note("what is posted to a queue pair in ERR comes back in the same way")
	if err := s.server().send(4, receiveSize); err != nil {
		return err
	}
	s.await(ctx, "server", "SEND", 4)
	s.states(ctx)
	s.note("flushed is never the cause; it says that the buffer is ours again")
	return s.recover(ctx)
}

// accessRefused: a READ names the memory by address and rkey. The server's card
// checks the key, the bounds, the region's rights, and those of the queue pair.
func accessRefused(ctx context.Context, s *stage) error {
	good := s.server().memory()
	for _, c := range []struct {
		what   string
		rights rdma.Access
		from   target
		n      int
	}{
		{"READ with a wrong rkey", readable, target{addr: good.addr, rkey: good.rkey ^ 0x5a00}, 64},
		{"READ past the end", readable, target{addr: good.addr + memorySize - 32, rkey: good.rkey}, 64},
		{"READ without the right", 0, good, 64},
	} {
		if err := s.connect(ctx, options{rights: c.rights}); err != nil {
			return err
		}
		// Three READs in a row: what becomes of the neighbours?
		if c.rights == readable {
			if err := s.client().read(1, good, 64); err != nil {
				return err
			}
			s.await(ctx, "client", "READ that is right", 1)
		}
		if err := s.client().read(2, c.from, c.n); err != nil {
			return err
		}
		if err := s.client().read(3, good, 64); err != nil {
			return err
		}
		s.await(ctx, "client", c.what, 2)
		s.await(ctx, "client", "READ behind it", 3)
		s.states(ctx)
	}
	s.note("the server's program was not asked and has posted nothing: its card refused")
	return s.recover(ctx)
}

// tooLong: the receive decides how much fits.
func tooLong(ctx context.Context, s *stage) error {
	if err := s.connect(ctx, options{receives: 1}); err != nil {
		return err
	}
	s.note("the receive has 64 bytes, the message 65")
	if err := s.client().send(1, receiveSize+1); err != nil {
		return err
	}
	s.await(ctx, "server", "RECV", 1)
	s.await(ctx, "client", "SEND", 1)
	s.states(ctx)
	return s.recover(ctx)
}

// localFault: our own card refuses, before anything is sent.
func localFault(ctx context.Context, s *stage) error {
	if err := s.connect(ctx, options{receives: 1}); err != nil {
		return err
	}
	if err := s.client().sendForeign(1); err != nil {
		s.line("client", "SEND of foreign memory", "not even posted: "+err.Error())
	} else {
		s.await(ctx, "client", "SEND of foreign memory", 1)
	}
	s.states(ctx)
	return s.recover(ctx)
}

// peerGone: the peer does not answer. A connection manager tells that
// (sometimes); without one, the card finds out by its own timeouts.
func peerGone(ctx context.Context, s *stage) error {
	if err := s.connect(ctx, options{rights: readable}); err != nil {
		return err
	}
	if err := s.server().vanish(); err != nil {
		return err
	}
	start := time.Now()
	if err := s.client().read(1, s.server().memory(), 64); err != nil {
		s.line("client", "READ", "not even posted: "+err.Error())
	} else {
		s.await(ctx, "client", "READ", 1)
	}
	s.note("that took %v", time.Since(start).Round(time.Millisecond))
	s.states(ctx)
	return s.recover(ctx)
}

// asyncEvents: a device has a channel of its own for news about itself, its
// ports and its queues.
func asyncEvents(ctx context.Context, s *stage) error {
	p, ok := s.pair.(interface {
		runLow(ctx context.Context, s *stage) error
	})
	if !ok {
		s.note("this fabric has none: a queue pair says itself what it died of (QP.Done, QP.Err)")
	} else if err := p.runLow(ctx, s); err != nil {
		return err
	}
	return s.recover(ctx)
}

// A stage prints what happens.
type stage struct {
	pair
	timeout time.Duration
	out     io.Writer
}

func (s *stage) note(format string, args ...any) {
	fmt.Fprintf(s.out, "   %s\n", fmt.Sprintf(format, args...))
}

func (s *stage) line(who, what, result string) {
	fmt.Fprintf(s.out, "   %-7s %-26s %s\n", who, what, result)
}

// await prints the status of a work request.
func (s *stage) await(ctx context.Context, who, what string, id uint64) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	e := s.client()
	if who == "server" {
		e = s.server()
	}
	status, err := e.wait(ctx, id)
	if err != nil {
		s.line(who, what, "no completion: "+err.Error())
		return
	}
	s.line(who, what, fmt.Sprintf("%v (%d)", status, status))
}

// states prints the states of the two queue pairs, and the device's asynchronous
// events.
func (s *stage) states(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.settle(ctx)
	s.line("client", "queue pair", s.client().state())
	s.line("server", "queue pair", s.server().state())
	for _, e := range s.events() {
		s.line("device", "asynchronous event", e)
	}
}

func (s *stage) connect(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	how, err := s.pair.connect(ctx, o)
	if err != nil {
		return err
	}
	s.line("both", "connected", how)
	return nil
}

// recover connects the two again, and proves it by a READ.
func (s *stage) recover(ctx context.Context) error {
	if err := s.connect(ctx, options{rights: readable}); err != nil {
		return err
	}
	if err := s.client().read(1, s.server().memory(), memorySize); err != nil {
		return err
	}
	s.await(ctx, "client", "READ after recovery", 1)
	return nil
}
