package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// admit is the last step of connecting. A node of a cluster says which it is, what
// it sees and which map it has; only one that is the node that was wanted, and
// of the cluster that this client uses, gets a session. So an address that
// gossip has told of leads to the right node or nowhere.
func (p *Peer) admit(l *base.Limit, s *session.Session) error {
	clustered := s.Welcome.Flags&wire.WelcomeClustered != 0
	switch {
	case p.dir == nil && !clustered:
		return nil
	case p.dir == nil && p.cfg.Direct:
		admitAlone(l, s)
		return nil
	case p.dir == nil:
		return fmt.Errorf("%w: the server at %s has become a node of a cluster: dial again", base.ErrUnavailable, s.Addr)
	case !clustered && p.Node == "":
		return nil // Dial decides what to make of it
	case !clustered:
		return fmt.Errorf("%w: the server at %s is no node of a cluster, %q is wanted", base.ErrUnavailable, s.Addr, p.Node)
	}
	n, err := s.FetchNews(l)
	if err != nil {
		return err
	}
	if p.Node != "" && n.View.Self != p.Node {
		return fmt.Errorf("%w: node %q answers at %s, %q is wanted", base.ErrUnavailable, n.View.Self, s.Addr, p.Node)
	}
	if err := p.dir.Learn(n, int(s.Welcome.Shards)); err != nil {
		return err
	}
	p.dir.Met(n.View.Self, s.Addr)
	s.Node = n.View.Self
	return nil
}

// newsFor is how long a node that is asked directly may take to tell what it sees, before gets of it go by SEND.
const newsFor = 300 * time.Millisecond

// admitAlone is admit for a node that is asked directly. If it may have replicas alone of what it has, its memory
// does not say what counts.
func admitAlone(l *base.Limit, s *session.Session) {
	ctx, cancel := context.WithTimeout(l.Ctx, newsFor)
	defer cancel()
	within := s.Clock.Unlimited(ctx)
	n, err := s.FetchNews(&within)
	s.BySend = s.BySend || err != nil || n.Map == nil || n.Map.Replication != nil
}

// RefreshNews asks the node what it sees now. An answer that is none of this
// cluster ends the session.
func RefreshNews(dir Directory, p *base.Limit, s *session.Session) error {
	n, err := s.FetchNews(p)
	if err != nil {
		return err
	}
	if n.View.Self != s.Node {
		err = fmt.Errorf("%w: node %q calls itself %q now", base.ErrProtocol, s.Node, n.View.Self)
	} else {
		err = dir.Learn(n, int(s.Welcome.Shards))
	}
	if err != nil && !errors.Is(err, base.ErrClosed) {
		s.Fail(err)
	}
	return err
}

// keepNews refreshes what is known of the cluster when the server shows a newer
// view version, which counts the changes of the cluster, too.
func (p *Peer) keepNews(ctx context.Context, s *session.Session) {
	defer func() {
		if s.EndNews() { // once more
			p.Wake()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	l := p.Clock.Unlimited(ctx)
	if err := RefreshNews(p.dir, &l, s); err != nil && ctx.Err() == nil {
		p.log.Info("refreshing the view of the cluster failed", "server", s.Addr, "node", s.Node, "err", err)
	}
}

// Owns reports whether a miss in the memory of the session's server may be believed. A node's
// index is complete for the shards that it owns, and says nothing of others; one
// without a map that is asked directly may not own what it is asked for.
func (p *Peer) Owns(s *session.Session, key []byte) bool {
	if p.dir != nil {
		return p.dir.Owns(s.Node, key)
	}
	return s.Welcome.Flags&wire.WelcomeClustered == 0
}
