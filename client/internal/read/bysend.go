package read

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// BySend asks the server. A value too large for a reply is held by it and
// READ.
func BySend(s *session.Session, p *base.Limit, key []byte, w *Query) error {
	w.Path = base.PathSend
	if w.InfoOnly {
		return existsBySend(s, p, key, w)
	}
	var h heldRead
	var refused base.Refusals
	for tries := 0; tries < heldTries; {
		sl, err := s.Open(p)
		if err != nil {
			return refused.Because(err)
		}
		asked := s.Now()
		r, err := sl.Call(p, wire.AppendGet(sl.Buf[:0], sl.ID(), wire.Get{
			MaxInline: uint32(s.Welcome.ReplySize), Key: key,
		}))
		if err != nil {
			if errors.Is(err, base.ErrNotFound) {
				s.Counts.SendGets.Add(1)
			}
			if err = refused.Again(s.Counts, p, err); err == nil {
				continue
			}
			return err
		}
		tries++
		m, err := wire.ParseGetReply(r.Body)
		if err != nil {
			return r.Malformed(err)
		}
		w.Info = base.Info{Size: int64(m.ValueLen), Version: m.Version, Expiry: base.ExpiryTime(m.Expiry)}
		if m.Kind == wire.GetInline {
			w.Dst = w.Dst[:len(w.Dst)-h.taken]
			err = w.take(m.Value)
			r.Done()
			s.Counts.SendGets.Add(1)
			return err
		}
		hold, valueLen, version := m.Hold, m.ValueLen, m.Version
		r.Done()
		p.Heard()
		err = readHeld(s, p, &h, hold, valueLen, version, asked, key, w)
		releaseHold(s, p, hold.ID)
		if err == nil {
			s.Counts.SendGets.Add(1)
		}
		if !errors.Is(err, base.ErrOverwritten) {
			return err
		}
		s.Counts.RetryChunk.Add(1)
		if err := p.Over(); err != nil {
			return refused.Because(err)
		}
		p.Rest(heldRest)
	}
	return fmt.Errorf("%w: a value held by the server could not be read in %d leases", base.ErrUnavailable, heldTries)
}

func existsBySend(s *session.Session, p *base.Limit, key []byte, w *Query) error {
	var r session.Reply
	var refused base.Refusals
	for {
		sl, err := s.Open(p)
		if err != nil {
			return refused.Because(err)
		}
		r, err = sl.Call(p, wire.AppendExists(sl.Buf[:0], sl.ID(), wire.Key{Key: key}))
		if err == nil {
			break
		}
		if errors.Is(err, base.ErrNotFound) {
			s.Counts.SendGets.Add(1)
		}
		if err = refused.Again(s.Counts, p, err); err != nil {
			return err
		}
	}
	m, err := wire.ParseExistsReply(r.Body)
	if err != nil {
		return r.Malformed(err)
	}
	r.Done()
	w.Info = base.Info{Size: int64(m.ValueLen), Version: m.Version, Expiry: base.ExpiryTime(m.Expiry)}
	s.Counts.SendGets.Add(1)
	return nil
}
