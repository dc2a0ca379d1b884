package client

import (
	"time"
)

// A connection by a fabric that is not the first choice is a makeshift: perhaps
// the server was just starting and its other listener came a moment later. So
// the better fabrics are tried again while it lasts, soon and then ever less
// often, and when one of them works the client moves over.

const (
	improveFirst = 100 * time.Millisecond
	improveMax   = time.Minute
)

// improve tries the fabrics before that of s until one works, or s is lost.
func (k *connector) improve(s *session) {
	timer := time.NewTimer(improveFirst)
	defer timer.Stop()
	for wait := improveFirst; ; {
		select {
		case <-timer.C:
		case <-s.down:
			return
		case <-k.c.done.Done():
			return
		}
		better, err := k.dialAddr(k.c.done, s.addr, s.way.fabric)
		if err == nil {
			k.moveTo(better, s)
			return
		}
		k.c.log.Debug("a better fabric does not work yet", "server", s.addr, "err", err)
		wait = min(2*wait, improveMax)
		timer.Reset(wait)
	}
}

// moveTo puts better in the place of old. Calls under way on old go on there:
// either session answers right, each by its own lease.
func (k *connector) moveTo(better, old *session) {
	c := k.c
	k.mu.Lock()
	if k.closed || c.current.Load() != old {
		k.mu.Unlock()
		better.fail(errSuperseded)
		<-better.gone
		return
	}
	c.n.moves.Add(1)
	c.log.Info("moving to a better fabric", "server", old.addr, "from", old.info().Fabric, "to", better.info().Fabric)
	k.installLocked(better)
	k.mu.Unlock()
	old.finish()
	<-old.gone
	c.transports.trim(better.t) // once more: old held buffers
}

// finish ends a session that no new call uses, as soon as nothing is under way
// on it, at the latest after Config.Timeout.
func (s *session) finish() {
	s.mindAside(func() bool { return s.users.Load() == 0 && s.readsDone.Load() == s.readsPosted.Load() })
	if s.c.done.Err() != nil {
		s.fail(ErrClosed)
	}
	s.fail(errSuperseded)
}
