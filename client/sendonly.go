package client

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A session whose tenant has no one-sided access: its keys are limited to a
// prefix, which no NIC could see to. The server tells it no regions and grants no
// right to READ. Every get is a SEND, and a value too large for a reply is held
// by the server and fetched in pieces by SEND, where others READ it. All is
// verified as if it had been READ.
//
// So it is with a value for which the server had no room in its registered memory:
// it says that the value is Nowhere, and whoever asked fetches it.

// emptyView is the region table of such a session.
func (s *session) emptyView(m *wire.ViewReply) (*view, uint64, error) {
	return &view{View: layout.View{Incarnation: m.Incarnation, Version: m.Version, Shards: m.Shards}}, m.ReclaimVersion, nil
}

// fetchHeld reads the wanted bytes of a held item of h's version, behind those that
// former holds have brought. errMoved: the hold was over before all was here.
func (s *session) fetchHeld(p *patience, h *heldRead, hold wire.Hold, valueLen uint32, asked int64, key []byte, w *want) error {
	head, err := heldHead(hold, valueLen)
	if err != nil {
		s.fail(err)
		return err
	}
	bytes, err := s.fetchBytes(p, hold.ID, 0, head, make([]byte, 0, head))
	if err != nil {
		return err
	}
	item, err := layout.ParseItem(bytes, s.incarnation, layout.Place(hold.Place))
	if err != nil || uint64(item.Version) != h.version || item.ValLen != int(valueLen) || string(item.Key()) != string(key) {
		return errMoved
	}
	w.info.Expiry = expiryTime(item.Expiry)
	until := asked + s.lease.length
	if item.Chunks == 0 {
		if s.now() >= until {
			return errMoved
		}
		return w.take(item.Value())
	}
	from, to, err := w.span(int64(valueLen))
	if err != nil || from == to {
		return err
	}
	from += int64(h.taken)
	w.grow(int(to - from))
	chunk := make([]byte, 0, layout.ChunkSize)
	for i := int(from / layout.ChunkSize); i <= int((to-1)/layout.ChunkSize); i++ {
		off, n := item.ChunkRange(i)
		data, err := s.fetchBytes(p, hold.ID, item.ValueOffset()+off, (n+7)&^7, chunk[:0])
		if err == nil && (s.now() >= until || !item.VerifyChunk(i, data[:n])) {
			err = errMoved
		}
		if err != nil {
			return err
		}
		lo, hi := max(from-int64(off), 0), min(to-int64(off), int64(n))
		w.dst = append(w.dst, data[lo:hi]...)
		h.taken += int(hi - lo)
	}
	return nil
}

// heldHead is how many bytes of a held item stand before a value in chunks; all
// of it if the value is in none. A place that cannot be is a protocol error.
func heldHead(hold wire.Hold, valueLen uint32) (int, error) {
	size, head := int64(hold.Size), int64(hold.Size)
	if valueLen > layout.ChunkSize {
		head -= int64(valueLen+7) &^ 7
	}
	if size > layout.MaxItemSize || size%8 != 0 || head < layout.ItemHeaderSize || head > int64(maxItemRead) ||
		hold.Place > uint64(layout.MaxPlace) {
		return 0, fmt.Errorf("%w: held item of %d bytes at %#x with a value of %d", ErrProtocol, hold.Size, hold.Place, valueLen)
	}
	return int(head), nil
}

// fetchBytes appends n bytes of a held item from offset off on.
func (s *session) fetchBytes(p *patience, hold uint64, off, n int, dst []byte) ([]byte, error) {
	var refused refusals
	for end := off + n; off < end; {
		sl, err := s.open(p)
		if err != nil {
			return nil, refused.because(err)
		}
		r, err := sl.call(p, wire.AppendFetch(sl.buf[:0], sl.id(), wire.Fetch{Hold: hold, Offset: uint32(off), Length: uint32(end - off)}))
		if errors.Is(err, wire.StatusNoHold.Err()) {
			return nil, errMoved
		}
		if err != nil {
			if err = refused.again(s.c, p, err); err == nil {
				continue
			}
			return nil, err
		}
		m, err := wire.ParseFetchReply(r.body)
		if err != nil || int(m.Offset) != off || len(m.Data) > end-off {
			return nil, r.malformed(fmt.Errorf("not the bytes that were asked for: %v", err))
		}
		dst = append(dst, m.Data...)
		off += len(m.Data)
		r.done()
	}
	return dst, nil
}
