package read

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
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
// it says that the value is Nowhere, and the client fetches it.

// fetchHeld reads the wanted bytes of a held item of h's version, behind those that
// former holds have brought. ErrOverwritten: the hold was over before all was here.
func fetchHeld(s *session.Session, p *base.Limit, h *heldRead, hold wire.Hold, valueLen uint32, asked int64, key []byte, w *Query) error {
	head, err := heldHead(hold, valueLen)
	if err != nil {
		s.Fail(err)
		return err
	}
	bytes, err := fetchBytes(s, p, hold.ID, 0, head, make([]byte, 0, head))
	if err != nil {
		return err
	}
	item, err := layout.ParseItem(bytes, s.Incarnation, layout.Place(hold.Place))
	if err != nil || uint64(item.Version) != h.version || item.ValLen != int(valueLen) || string(item.Key()) != string(key) {
		return base.ErrOverwritten
	}
	w.Info.Expiry = base.ExpiryTime(item.Expiry)
	until := asked + s.Lease.Length
	if item.Chunks == 0 {
		if s.Now() >= until {
			return base.ErrOverwritten
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
		data, err := fetchBytes(s, p, hold.ID, item.ValueOffset()+off, (n+7)&^7, chunk[:0])
		if err == nil && (s.Now() >= until || !item.VerifyChunk(i, data[:n])) {
			err = base.ErrOverwritten
		}
		if err != nil {
			return err
		}
		lo, hi := max(from-int64(off), 0), min(to-int64(off), int64(n))
		w.Dst = append(w.Dst, data[lo:hi]...)
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
		return 0, fmt.Errorf("%w: held item of %d bytes at %#x with a value of %d", base.ErrProtocol, hold.Size, hold.Place, valueLen)
	}
	return int(head), nil
}

// fetchBytes appends n bytes of a held item from offset off on.
func fetchBytes(s *session.Session, p *base.Limit, hold uint64, off, n int, dst []byte) ([]byte, error) {
	var refused base.Refusals
	for end := off + n; off < end; {
		sl, err := s.Open(p)
		if err != nil {
			return nil, refused.Because(err)
		}
		r, err := sl.Call(p, wire.AppendFetch(sl.Buf[:0], sl.ID(), wire.Fetch{Hold: hold, Offset: uint32(off), Length: uint32(end - off)}))
		if errors.Is(err, wire.StatusNoHold.Err()) {
			return nil, base.ErrOverwritten
		}
		if err != nil {
			if err = refused.Again(s.Counts, p, err); err == nil {
				continue
			}
			return nil, err
		}
		m, err := wire.ParseFetchReply(r.Body)
		if err != nil || int(m.Offset) != off || len(m.Data) > end-off {
			return nil, r.Malformed(fmt.Errorf("not the bytes that were asked for: %v", err))
		}
		dst = append(dst, m.Data...)
		off += len(m.Data)
		r.Done()
		p.Heard()
	}
	return dst, nil
}
