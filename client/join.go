package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// join is the last step of connecting. A node of a cluster says who it is, what
// it sees and which map it has; only one that is the node that was wanted, and
// of the cluster that this client uses, gets a session. So an address that
// gossip has told of leads to the right node or nowhere.
func (s *session) join(p *patience) error {
	c := s.c
	clustered := s.welcome.Flags&wire.WelcomeClustered != 0
	switch {
	case c.fleet == nil && (c.cfg.Direct || !clustered):
		return nil
	case c.fleet == nil:
		return fmt.Errorf("%w: the server at %s has become a node of a cluster: dial again", ErrUnavailable, s.addr)
	case !clustered && c.node == "":
		return nil // Dial decides what to make of it
	case !clustered:
		return fmt.Errorf("%w: the server at %s is no node of a cluster, %q is wanted", ErrUnavailable, s.addr, c.node)
	}
	n, err := s.fetchNews(p)
	if err != nil {
		return err
	}
	if c.node != "" && n.view.Self != c.node {
		return fmt.Errorf("%w: node %q answers at %s, %q is wanted", ErrUnavailable, n.view.Self, s.addr, c.node)
	}
	if err := c.fleet.learn(n, int(s.welcome.Shards)); err != nil {
		return err
	}
	c.fleet.cameBy(n.view.Self, s.addr)
	s.node = n.view.Self
	return nil
}

// refreshNews asks the node what it sees now. An answer that is none of this
// cluster ends the session.
func (s *session) refreshNews(p *patience) error {
	n, err := s.fetchNews(p)
	if err != nil {
		return err
	}
	if n.view.Self != s.node {
		err = fmt.Errorf("%w: node %q calls itself %q now", ErrProtocol, s.node, n.view.Self)
	} else {
		err = s.c.fleet.learn(n, int(s.welcome.Shards))
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		s.fail(err)
	}
	return err
}

// fetchNews asks for view and map. The server is not believed yet.
func (s *session) fetchNews(p *patience) (*news, error) {
	n := &news{incarnation: s.incarnation}
	text, err := s.fetchCluster(p, wire.ClusterView)
	if err == nil {
		n.view, err = cluster.ParseView(text)
	}
	if err == nil && n.view.Self == "" {
		err = fmt.Errorf("%w: a view without the name of its node", cluster.ErrMalformed)
	}
	if err != nil {
		return nil, s.badNews(err)
	}
	if text, err = s.fetchCluster(p, wire.ClusterMap); errors.Is(err, ErrNoMap) {
		return n, nil
	} else if err == nil {
		n.m, err = cluster.ParseMap(text)
	}
	if err != nil {
		return nil, s.badNews(err)
	}
	return n, nil
}

// badNews ends the session over an answer that does not parse.
func (s *session) badNews(err error) error {
	if !errors.Is(err, cluster.ErrMalformed) {
		return err
	}
	err = fmt.Errorf("%w: %v", ErrProtocol, err)
	s.fail(err)
	return err
}

// errNewsMoved: what was asked for changed between two parts.
var errNewsMoved = errors.New("the view of the cluster changed while it was read")

// fetchCluster asks for one of the things that TypeCluster tells of, in parts,
// and begins again if it changes in between.
func (s *session) fetchCluster(p *patience, what wire.ClusterWhat) ([]byte, error) {
	for range 10 {
		text, err := s.fetchClusterOnce(p, what)
		if !errors.Is(err, errNewsMoved) {
			return text, err
		}
	}
	return nil, fmt.Errorf("%w: the view of the cluster changes faster than it can be read", ErrUnavailable)
}

// maxNews bounds a view or a map, in bytes: of 1,024 nodes each.
const maxNews = 1 << 20

func (s *session) fetchClusterOnce(p *patience, what wire.ClusterWhat) ([]byte, error) {
	var text []byte
	var version uint64
	for total, first := uint32(0), true; first || uint32(len(text)) < total; first = false {
		sl, err := s.open(p)
		if err != nil {
			return nil, err
		}
		r, err := sl.call(p, wire.AppendClusterRequest(sl.buf[:0], sl.id(), wire.ClusterRequest{What: what, Offset: uint32(len(text))}))
		if err != nil {
			return nil, err
		}
		m, err := wire.ParseClusterReply(r.body)
		switch {
		case err != nil:
		case m.Total > maxNews || m.Total == 0 || len(m.Data) == 0 || int(m.Offset) != len(text):
			err = fmt.Errorf("%d bytes at %d of %d", len(m.Data), m.Offset, m.Total)
		case !first && (m.Version != version || m.Total != total):
			r.done()
			return nil, errNewsMoved
		}
		if err != nil {
			return nil, r.malformed(err)
		}
		total, version = m.Total, m.Version
		text = append(text, m.Data...)
		r.done()
	}
	return text, nil
}

// keepNews refreshes what is known of the cluster when the server shows a newer
// view version, which counts the changes of the cluster, too.
func (s *session) keepNews() {
	defer func() {
		s.newsAsked.Store(false)
		if s.newsDue.Load() { // once more
			s.c.poke()
		}
	}()
	ctx, cancel := context.WithTimeout(s.c.done, s.c.cfg.Timeout)
	defer cancel()
	if err := s.refreshNews(&patience{c: s.c, ctx: ctx}); err != nil && ctx.Err() == nil {
		s.c.log.Info("refreshing the view of the cluster failed", "server", s.addr, "node", s.node, "err", err)
	}
}

// owns reports whether a miss in this server's memory may be believed. A node's
// index is complete for the shards that it owns, and says nothing of others; one
// without a map that is asked directly may not own what it is asked for.
func (s *session) owns(key []byte) bool {
	if s.c.fleet != nil {
		return s.c.fleet.owns(s.node, key)
	}
	return s.welcome.Flags&wire.WelcomeClustered == 0
}
