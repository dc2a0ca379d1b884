package peer

import (
	"time"

	"github.com/rdmakv/rdmakv/client/internal/session"
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
func (k *connector) improve(s *session.Session) {
	timer := time.NewTimer(improveFirst)
	defer timer.Stop()
	for wait := improveFirst; ; {
		select {
		case <-timer.C:
		case <-s.Down:
			return
		case <-k.c.done.Done():
			return
		}
		better, err := k.dialAddr(k.c.done, s.Addr, s.Way.Fabric)
		if err == nil {
			k.moveTo(better, s)
			return
		}
		k.c.log.Debug("a better fabric does not work yet", "server", s.Addr, "err", err)
		wait = min(2*wait, improveMax)
		timer.Reset(wait)
	}
}

// moveTo puts better in the place of old. Calls under way on old go on there:
// either session answers right, each by its own lease.
func (k *connector) moveTo(better, old *session.Session) {
	c := k.c
	k.mu.Lock()
	if k.closed || c.current.Load() != old {
		k.mu.Unlock()
		better.Fail(ErrSuperseded)
		<-better.Gone
		return
	}
	c.n.Moves.Add(1)
	c.log.Info("moving to a better fabric", "server", old.Addr, "from", old.Info().Fabric, "to", better.Info().Fabric)
	k.installLocked(better)
	k.mu.Unlock()
	old.Finish(ErrSuperseded)
	<-old.Gone
	c.Devices.Trim(better.Device) // once more: old held buffers
}
