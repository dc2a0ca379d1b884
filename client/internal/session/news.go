package session

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// BeginNews reports whether the server may see another cluster than when it was asked
// last, and no other goroutine is asking it. Then the caller asks, and calls EndNews.
func (l *sight) BeginNews() bool {
	if !l.newsDue.Load() || !l.newsAsked.CompareAndSwap(false, true) {
		return false
	}
	l.newsDue.Store(false)
	return true
}

// EndNews is called when the server has been asked; it reports whether it must be
// asked once more.
func (l *sight) EndNews() bool {
	l.newsAsked.Store(false)
	return l.newsDue.Load()
}

// FetchNews asks for view and map. The server is not believed yet.
func (s *Session) FetchNews(p *base.Limit) (*News, error) {
	n := &News{Incarnation: s.Incarnation}
	text, err := s.Document(p, wire.DocumentView, nil, MaxNews)
	if err == nil {
		n.View, err = cluster.ParseView(text)
	}
	if err == nil && n.View.Self == "" {
		err = fmt.Errorf("%w: a view without the name of its node", cluster.ErrMalformed)
	}
	if err != nil {
		return nil, s.BadNews(err)
	}
	if text, err = s.Document(p, wire.DocumentMap, nil, MaxNews); errors.Is(err, base.ErrNoMap) {
		return n, nil
	} else if err == nil {
		n.Map, err = cluster.ParseMap(text)
	}
	if err != nil {
		return nil, s.BadNews(err)
	}
	return n, nil
}

// BadNews ends the session over an answer that does not parse.
func (s *Session) BadNews(err error) error {
	if !errors.Is(err, cluster.ErrMalformed) {
		return err
	}
	err = fmt.Errorf("%w: %v", base.ErrProtocol, err)
	s.Fail(err)
	return err
}

// MaxNews bounds a view or a map, in bytes: of 1,024 nodes each.
const MaxNews = 1 << 20

// News is what a node has said of its cluster. Immutable.
type News struct {
	Incarnation uint64 // of the node's store
	View        *cluster.View
	Map         *cluster.Map // nil: it has none
}
