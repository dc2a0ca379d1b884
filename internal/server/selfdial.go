package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/rdma"
)

// Whether connections can still be made. A port that went down and came back may
// leave a device with which sessions go on, and on which nobody can connect any
// more: its GIDs are gone, or the kernel's connection manager sends nothing (seen
// on Soft-RoCE). Nothing reports that. So the node dials its own listeners, after
// each change of a port and once a minute, and refuses itself by the word that only
// it knows, before a session is made of it.
//
// A dial that has never succeeded on a device says nothing: not every device
// reaches itself.

const (
	selfDialEvery = time.Minute
	// selfDialTime bounds one dial: the connection manager repeats a lost message
	// after 4.3 s.
	selfDialTime = 6 * time.Second
	// selfDialTries is how many dials in a row must fail, a pause apart: the
	// addresses of a port come back a moment after it.
	selfDialTries = 3
	selfDialPause = time.Second
	selfDialWord  = 32 // bytes
)

// A selfDial dials the listeners of its node, and knows the node's own requests by a word.
type selfDial struct {
	srv  *Server
	word []byte
}

func newSelfDial(srv *Server) *selfDial {
	w := make([]byte, selfDialWord)
	rand.Read(w) // never fails
	return &selfDial{srv, w}
}

// ours says whether a connection request is the node's own.
func (s *selfDial) ours(private []byte) bool {
	return len(private) >= len(s.word) && subtle.ConstantTimeCompare(private[:len(s.word)], s.word) == 1
}

// A cmState is what the last dials have shown; err is nil if one succeeded.
type cmState struct{ err error }

// watch begins to dial the listeners of a device, if that tells of changes
// of its ports. It ends with the device.
func (s *selfDial) watch(d *device) {
	srv := s.srv
	w, ok := d.Dev.(rdma.PortWatcher)
	if !ok || w.PortChanges() == nil {
		return
	}
	var ctx context.Context
	ctx, d.stopChecks = context.WithCancel(srv.run)
	srv.wg.Add(1)
	d.checking.Go(func() {
		defer srv.wg.Done()
		s.loop(ctx, d, w.PortChanges())
	})
}

func (s *selfDial) loop(ctx context.Context, d *device, changes <-chan struct{}) {
	tick := time.NewTicker(selfDialEvery)
	defer tick.Stop()
	for {
		s.check(ctx, d)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changes:
		}
	}
}

// check dials, lets the listeners listen anew if that has begun to fail, and notes
// what came of it.
func (s *selfDial) check(ctx context.Context, d *device) {
	log := s.srv.log
	var err error
	for try := range selfDialTries {
		if try > 0 && !pausedFor(ctx, selfDialPause) {
			return
		}
		if err = s.dialPorts(ctx, d); err == nil || ctx.Err() != nil {
			break
		}
	}
	before := d.cm.Load()
	if err != nil && before != nil && ctx.Err() == nil {
		if again := s.relisten(ctx, d, before.err == nil); again {
			if err = s.dialPorts(ctx, d); err == nil {
				log.Warn(base.LogAlways, "a listener answered no connection requests; it was made anew and does", "device", d.Name())
			}
		}
	}
	switch {
	case ctx.Err() != nil || d.Away() != nil:
	case err == nil:
		if before != nil && before.err != nil {
			log.Info("connections can be made again", "device", d.Name())
		}
		d.cm.Store(&cmState{})
	case before == nil:
		log.Debug("a device does not reach itself: whether connections can be made there is not known", "device", d.Name(), "err", err)
	default:
		err = fmt.Errorf("connections cannot be made: %w; %s", err, hintOf(err))
		if before.err == nil {
			log.Error(base.LogAlways, "nobody can connect by this device; the sessions that there are go on", "device", d.Name(), "err", err)
		}
		d.cm.Store(&cmState{err})
	}
}

// hintOf says what to look at.
func hintOf(err error) string {
	if errors.Is(err, rdma.ErrNoDevice) || errors.Is(err, rdma.ErrInvalid) {
		return "see whether the address is still on the interface (ip addr, rdma link)"
	}
	return "see rdma link; if the port is active, the connection manager of the device is dead: reload the driver, for Soft-RoCE rdma link delete and add, and restart this process if it does not come back by itself"
}

// pausedFor waits for d; false if ctx ends first.
func pausedFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dialPorts dials each listener of a device.
func (s *selfDial) dialPorts(ctx context.Context, d *device) error {
	for _, p := range s.srv.devices.listening() {
		if p.dev != d {
			continue
		}
		if err := s.dial(ctx, d, p.ln.Addr().String()); err != nil {
			return err
		}
	}
	return nil
}

// dial connects to a listener of the node. A refusal by the program is what it
// wants; what cannot be made for a dial says nothing about connections.
func (s *selfDial) dial(ctx context.Context, d *device, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, selfDialTime)
	defer cancel()
	pd, err := d.Dev.AllocPD()
	if err != nil {
		return nil
	}
	defer pd.Close()
	cq, err := d.Dev.CreateCQ(2)
	if err != nil {
		return nil
	}
	defer cq.Close()
	qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: rdma.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSGE: 1}})
	if err != nil {
		return nil
	}
	defer qp.Close()
	_, err = qp.Connect(ctx, addr, rdma.ConnParams{PrivateData: s.word})
	switch {
	case errors.Is(err, rdma.ErrRejected):
		return nil
	case err == nil:
		return errors.New("another program answers at the listener's address")
	}
	return err
}

// relisten makes the listeners of a device anew at their addresses: all of them, or
// those alone for which that has failed before. It reports whether it made one.
func (s *selfDial) relisten(ctx context.Context, d *device, all bool) (made bool) {
	for _, p := range s.srv.devices.listening() {
		if p.dev != d || !all && !p.closing.Load() {
			continue
		}
		p.closing.Store(true)
		p.ln.Close()
		ln, err := d.Dev.Listen(ctx, p.ln.Addr().String())
		if err != nil {
			s.srv.log.Warn(base.LogAccept, "a listener cannot be made anew", "listener", p.name(), "err", err)
			continue
		}
		if !s.srv.devices.replacePort(p, &port{Listener: p.Listener, dev: d, ln: ln}) {
			ln.Close()
			return made
		}
		made = true
	}
	return made
}

// replacePort puts a port in the place of another and accepts on it; false once the
// node ends.
func (ds *devices) replacePort(old, fresh *port) bool {
	srv := ds.srv
	ds.mu.Lock()
	defer ds.mu.Unlock()
	i := slices.Index(ds.ports, old)
	if i < 0 || srv.main.Draining.Load() {
		return false
	}
	ds.ports = slices.Clone(ds.ports)
	ds.ports[i] = fresh
	srv.wg.Go(func() { srv.acceptor.run(srv.run, fresh) })
	return true
}
