package read

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Values above 64 KiB lie in chunks of 64 KiB, each with a checksum in the
// item's head. A get READs the head (that is where it takes effect: the item
// was live then), then the chunks it wants, up to eight of them with one READ,
// because they lie side by side, and two READs in flight. It verifies each chunk
// against the head. The checksums are seeded with place and version, so that what
// verifies is of that version, whenever it was READ. Where the server's memory is
// mapped the chunks are copied instead (direct.go).
//
// A one-sided read of chunks follows the rules of every READ: each window of
// them is handled within the lease that was in force when it was posted, and
// the place must not be in a page retired since the head was read. If the value
// is overwritten too often, the server is asked to hold one version still: it
// answers with a place that nothing is written to until Release, or a lease
// after the reply.

const (
	// heldTries is how often a hold is asked for: each must bring some bytes
	// of the value, or the next one starts from nothing again.
	heldTries = 64
	// heldRest is the rest before the next one: if it was damaged, the server is
	// about to repair it.
	heldRest = 10 * time.Millisecond
)

// A source is a large item whose head has been verified.
type source struct {
	item  layout.ItemView // over a copy of the head
	place layout.Place
	since uint64 // reclaim version at which the place was good
	held  bool   // the server keeps it, until the time below
	until int64
}

// newSource copies the head out of the get's buffer: the get then holds no
// buffer while it waits for others.
func newSource(s *session.Session, g *attempt) *source {
	head := append([]byte(nil), g.item.Head()...)
	item, err := layout.ParseItem(head, s.Incarnation, g.loc.Place)
	if err != nil { // it has just been verified
		panic(fmt.Sprintf("client: verified item does not parse: %v", err))
	}
	return &source{item: item, place: g.loc.Place, since: g.grant.Retired.Version}
}

// A window is some chunks under way, with one READ; two of them are in flight.
type window struct {
	b        *session.Reads
	grant    *session.Grant
	from, to int // chunks
}

// chunk is chunk i of the window of src, once it has been READ.
func (win *window) chunk(src *source, i int) []byte {
	first, _ := src.item.ChunkRange(win.from)
	off, n := src.item.ChunkRange(i)
	return win.b.Bytes(0)[off-first:][:n]
}

// counts fails with ErrOverwritten if what was READ of src under grant does not count now.
func (src *source) counts(s *session.Session, grant *session.Grant) error {
	now := s.Now()
	if src.held {
		if now >= src.until {
			return base.ErrOverwritten
		}
	} else if !s.Lease.Holds(grant, now) {
		s.Counts.LeaseExpired.Add(1)
		return base.ErrOverwritten
	}
	return nil
}

// gone says that src's place was given to something else before what is READ under
// grant.
func (src *source) gone(grant *session.Grant) bool {
	return !src.held && grant.Retired.Has(src.place, uint32(src.item.Size), src.since)
}

// verify fails with ErrOverwritten if data is not chunk i of src.
func (src *source) verify(s *session.Session, i int, data []byte) error {
	if src.item.VerifyChunk(i, data) {
		return nil
	}
	if src.held {
		s.SuspectHeld(src.item.Key(), layout.Loc{Place: src.place, Size: uint32(src.item.Size), Version: src.item.Version})
	}
	return base.ErrOverwritten
}

// chunkPlace is where chunk i of src stands.
func (src *source) chunkPlace(i int) layout.Place {
	off, _ := src.item.ChunkRange(i)
	return src.place + layout.PlaceOfByte(uint64(src.item.ValueOffset()+off))
}

// readLarge appends the wanted bytes of src. It fails with ErrOverwritten if the item
// is gone, or its hold over; w.dst then holds what came before, in order.
func readLarge(s *session.Session, p *base.Limit, src *source, w *Query) error {
	from, to, err := w.span(int64(src.item.ValLen))
	if err != nil || from == to {
		return err
	}
	if w.Sink != nil && !w.Sink.Takes(int64(src.item.ValLen)) {
		return w.Sink.TooSmall(int64(src.item.ValLen))
	}
	first := len(w.Dst)
	w.Head = nil
	w.grow(int(to - from))
	if err = readMapped(s, p, src, w, from, to); errors.Is(err, errUnmapped) {
		from += int64(len(w.Dst) - first)
		err = readChunks(s, p, src, w, from, to)
	}
	if err != nil {
		if !src.held {
			w.Dst = w.Dst[:first]
		}
		return err
	}
	s.Counts.LargeReads.Add(1)
	return nil
}

// readChunks keeps two windows in flight: while one is verified and copied, the
// next one travels.
func readChunks(s *session.Session, p *base.Limit, src *source, w *Query, from, to int64) error {
	next, last := int(from/layout.ChunkSize), int((to-1)/layout.ChunkSize)
	var ahead *window
	defer func() {
		if ahead != nil { // an error: let go of what is under way
			ahead.settle(p)
		}
	}()
	for next <= last || ahead != nil {
		cur := ahead
		ahead = nil
		if cur == nil {
			var err error
			if cur, err = postWindow(s, p, src, w, next, last, true); err != nil {
				return err
			}
			next = cur.to
		}
		if next <= last {
			var err error
			if ahead, err = postWindow(s, p, src, w, next, last, false); err != nil {
				cur.settle(p)
				return err
			}
			if ahead != nil {
				next = ahead.to
			}
		}
		if err := takeWindow(s, p, src, cur, w, from, to); err != nil {
			return err
		}
	}
	return nil
}

// postWindow READs the next chunks, which lie side by side. With must it waits for a buffer and for
// space in the send queue; else it returns nil when they are not free.
func postWindow(s *session.Session, p *base.Limit, src *source, w *Query, next, last int, must bool) (*window, error) {
	win := &window{grant: s.Lease.Grant(), from: next, to: min(next+base.WindowChunks, last+1)}
	if src.gone(win.grant) {
		return nil, base.ErrOverwritten
	}
	win.b = s.NewReads(s.View())
	from, _ := src.item.ChunkRange(win.from)
	to, n := src.item.ChunkRange(win.to - 1)
	if _, err := win.b.Add(src.chunkPlace(win.from), (to-from+n+7)&^7); err != nil {
		win.b.Release()
		return nil, base.ErrOverwritten
	}
	if ok, err := win.b.Into(p, w.Sink, next*layout.ChunkSize, must); !ok {
		win.b.Release()
		return nil, err
	}
	if err := win.b.Post(p); err != nil {
		if !errors.Is(err, session.ErrAbandoned) {
			win.b.Release()
		}
		if errors.Is(err, base.ErrNoRegion) {
			err = base.ErrOverwritten
		}
		return nil, err
	}
	return win, nil
}

// takeWindow waits for a window, decides whether it counts, verifies and
// appends.
func takeWindow(s *session.Session, p *base.Limit, src *source, win *window, w *Query, from, to int64) error {
	mine, err := win.b.Wait(p)
	if !mine {
		return err
	}
	defer win.b.Release()
	if err != nil {
		return err
	}
	if err := src.counts(s, win.grant); err != nil {
		return err
	}
	p.Heard()
	for i := win.from; i < win.to; i++ {
		off, n := src.item.ChunkRange(i)
		data := win.chunk(src, i)
		if err := src.verify(s, i, data); err != nil {
			return err
		}
		if win.b.InPlace() {
			w.Dst = w.Dst[:off+n] // it stands there
			continue
		}
		lo, hi := max(from-int64(off), 0), min(to-int64(off), int64(n))
		w.Dst = append(w.Dst, data[lo:hi]...)
	}
	return nil
}

// settle waits for a window whose bytes are not wanted any more.
func (win *window) settle(p *base.Limit) {
	if mine, _ := win.b.Wait(p); mine {
		win.b.Release()
	}
}

// A heldRead is how far a value has been read over several holds.
type heldRead struct {
	version  uint64
	valueLen uint32
	taken    int // bytes in want.dst that are of this version
}

// readHeld READs an item that the server holds. ErrOverwritten means that the hold
// was over before all was read; what was read stays in w.dst and counts if the
// next hold is of the same version.
func readHeld(s *session.Session, p *base.Limit, h *heldRead, hold wire.Hold, valueLen uint32, version uint64, asked int64, key []byte, w *Query) error {
	if h.version != version || h.valueLen != valueLen { // the length: a server may lie
		w.Dst = w.Dst[:len(w.Dst)-h.taken]
		*h = heldRead{version: version, valueLen: valueLen}
	}
	if s.SendOnly || hold.Place == uint64(layout.Nowhere) {
		return fetchHeld(s, p, h, hold, valueLen, asked, key, w)
	}
	src, b, err := readHeldHead(s, p, hold, valueLen, version, key)
	if err != nil {
		return err
	}
	src.until = asked + s.Lease.Length // the server holds for a lease after its reply
	w.Info.Expiry = base.ExpiryTime(src.item.Expiry)
	if src.item.Chunks == 0 {
		defer b.Release()
		if s.Now() >= src.until {
			return base.ErrOverwritten
		}
		return w.take(src.item.Value())
	}
	b.Release()
	// The rest of what is wanted, behind what former holds have brought.
	from, to, err := w.span(int64(valueLen))
	if err != nil {
		return err
	}
	rest := Query{Off: from + int64(h.taken), N: to - from - int64(h.taken), Dst: w.Dst}
	before := len(w.Dst)
	err = readLarge(s, p, src, &rest)
	w.Dst = rest.Dst
	h.taken += len(w.Dst) - before
	return err
}

// readHeldHead READs and verifies the head of a held item, or all of a small
// one. The item of a small one stands in the batch, that of a large one has a
// copy of its own.
func readHeldHead(s *session.Session, p *base.Limit, hold wire.Hold, valueLen uint32, version uint64, key []byte) (*source, *session.Reads, error) {
	head, err := heldHead(hold, valueLen)
	if err != nil {
		s.Fail(err)
		return nil, nil, err
	}
	place := layout.Place(hold.Place)
	b := s.NewReads(s.View())
	if _, err := b.Add(place, head); err != nil {
		b.Release()
		// The region is younger than our view.
		if err := s.RefreshView(p); err != nil {
			return nil, nil, err
		}
		return nil, nil, base.ErrOverwritten
	}
	mine, err := b.Run(p)
	if err != nil {
		if mine {
			b.Release()
		}
		if errors.Is(err, base.ErrNoRegion) {
			err = base.ErrOverwritten
		}
		return nil, nil, err
	}
	bytes := b.Bytes(0)
	if valueLen > layout.ChunkSize {
		bytes = append([]byte(nil), bytes...)
	}
	item, err := layout.ParseItem(bytes, s.Incarnation, place)
	if err != nil || uint64(item.Version) != version || item.ValLen != int(valueLen) || string(item.Key()) != string(key) {
		b.Release()
		return nil, nil, base.ErrOverwritten // the hold was over before we came
	}
	return &source{item: item, place: place, held: true}, b, nil
}

// releaseHold gives a held place back before its time, and does not wait for the reply. If
// no slot or credit is free the server's own clock does it.
func releaseHold(s *session.Session, p *base.Limit, id uint64) {
	sl := s.TryOpen(p)
	if sl == nil {
		return
	}
	if sl.Post(wire.AppendRelease(sl.Buf[:0], sl.ID(), wire.Release{ID: id})) == nil {
		sl.Detach()
	}
}
