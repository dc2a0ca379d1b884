package peer

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/rdma"
)

// The first connection waits for its server as every later one does: a program and
// its server are often started together, and a cluster's nodes one after the other.
// Attempts are made until Dial's time is over, with the rests of reconnect.go.
// What no waiting can mend ends it at once.

// Dial makes the first session. It takes as long as ctx allows; without a deadline
// there it begins no attempt after Config.Timeout.
func (p *Peer) Dial(ctx context.Context) (*session.Session, error) {
	begun, patient := time.Now(), ctx
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		patient, cancel = context.WithTimeout(ctx, p.cfg.Timeout)
		defer cancel()
	}
	var rest time.Duration
	var last error
	for n := 1; ; n++ {
		s, err := p.conn.dialAny(ctx)
		switch {
		case err == nil:
			return s, nil
		case last != nil && over(ctx): // it was cut short: the one before says more
		case p.cfg.DialOnce || !mayCome(err):
			return nil, err
		default:
			last = err
		}
		if !over(patient) {
			p.n.ConnectsFailed.Add(1)
			rest = nextBackoff(rest)
			if !refused(err) && !unresolved(err) {
				rest = min(rest, backoffCalls)
			}
			p.log.Info("connecting failed", "err", err, "again_in", rest)
			if p.cfg.OnWait != nil {
				p.cfg.OnWait(err)
			}
		}
		if !base.Pause(patient, rest) {
			if n == 1 || errors.Is(ctx.Err(), context.Canceled) {
				return nil, base.Because(base.ErrUnavailable, errors.Join(last, canceled(ctx)))
			}
			return nil, &base.DialError{Err: last, Attempts: n, Took: time.Since(begun)}
		}
	}
}

// over reports whether ctx has ended, or will at once: a socket's deadline may fire
// before the timer of the context that it was taken from.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// canceled is ctx's error if its caller has given up.
func canceled(ctx context.Context) error {
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// mayCome reports whether the server that an attempt did not reach may be there
// soon: nothing listens yet, the name is not known yet, no answer, or an answer that
// there is no room now. A refusal of the secret or the version is none of these,
// nor is a machine without a device for the fabric.
func mayCome(err error) bool {
	for _, never := range []error{base.ErrAuth, base.ErrVersion, base.ErrOtherCluster, base.ErrProtocol, base.ErrNoRDMA, base.ErrConfig, base.ErrClosed, context.Canceled} {
		if errors.Is(err, never) {
			return false
		}
	}
	if errors.As(err, new(refusal)) || unresolved(err) {
		return true
	}
	for _, soon := range []error{rdma.ErrPeerGone, rdma.ErrDeadline, context.DeadlineExceeded, fs.ErrNotExist} {
		if errors.Is(err, soon) {
			return true
		}
	}
	return false
}

// unresolved: a host's name has no address.
func unresolved(err error) bool { return errors.As(err, new(*net.DNSError)) }
