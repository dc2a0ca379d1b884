package transport

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// How slowly a snapshot may come. A node has few places for snapshots (driver.MaxReceiving), and a sender that lets a little come now and then would hold
// one for ever. So the receiver waits for a sender as long as that has time left: it begins with paceFirst, each byte adds what it takes at leastRate,
// up to paceMost, and what the receiver waits is taken off. A sender that has none left is given up (consensus.ErrSlow).
//
// leastRate is a 256th of what a receiver writes (64 MiB a second), so a sender is well above it that shares a slow disk or a line of 100 Mbit/s with
// many others. paceFirst is more than a disk that works again takes for its first answer. paceMost, which 7.5 MiB earn, is for how long the
// ends of a way wait for each other anyway: the sender may be a virtual machine that is moved, or its disk may hang for a while.
//
// What the receiver does for itself (it writes, keeps to Config.Rate, waits for a place) does not count, and of a step that has taken longer than
// paceStep only so much counts: this node was stopped meanwhile, and what has come lies there.
const (
	leastRate = 256 << 10 // bytes a second
	paceFirst = 10 * time.Second
	paceMost  = patience
	paceStep  = time.Second
)

// A pace is the time that a sender has left.
type pace struct{ left time.Duration }

// wait calls f, which waits for the sender until its context ends and can be called again then, until it is done, or the sender has no time left.
func (p *pace) wait(ctx context.Context, f func(ctx context.Context) error) error {
	for {
		step, cancel := context.WithTimeout(ctx, paceStep)
		began := time.Now()
		err := f(step)
		more := step.Err() != nil && ctx.Err() == nil
		cancel()
		p.left -= min(time.Since(began), paceStep)
		switch {
		case err == nil || !more:
			return err
		case p.left <= 0:
			return p.over()
		}
	}
}

// came adds what so many bytes are worth.
func (p *pace) came(bytes int64) error {
	p.left = min(p.left+time.Duration(bytes)*time.Second/leastRate, paceMost)
	if p.left <= 0 {
		return p.over()
	}
	return nil
}

func (p *pace) over() error {
	return fmt.Errorf("%w: less than %d KiB a second, for %v or longer", consensus.ErrSlow, leastRate>>10, paceFirst)
}
