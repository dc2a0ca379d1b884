package client

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Values above 64 KiB lie in chunks of 64 KiB, each with a checksum in the
// item's head. A get READs the head (that is where it takes effect: the item
// was live then), then the chunks it wants, several READs in flight, and
// verifies each chunk against the head. The checksums are seeded with place and
// version, so that what verifies is of that version, whenever it was READ.
//
// A one-sided read of chunks follows the rules of every READ: each window of
// them is handled within the lease that was in force when it was posted, and
// the place must not be in a page retired since the head was read. If the value
// is overwritten too often, the server is asked to hold one version still: it
// answers with a place that nothing is written to until Release, or a lease
// after the reply.

const (
	// windowChunks are READ with one doorbell; two windows are in flight.
	windowChunks = 8
	readWindow   = windowChunks * layout.ChunkSize
	// heldTries is how often a hold is asked for: each must bring some bytes
	// of the value, or the next one starts from nothing again.
	heldTries = 64
	// heldRest is the rest before the next one: if it was damaged, the server is
	// about to repair it.
	heldRest = 10 * time.Millisecond
)

// errMoved: the value is not there any more, in that version.
var errMoved = errors.New("value was overwritten while it was read")

// A source is a large item whose head has been verified.
type source struct {
	item  layout.ItemView // over a copy of the head
	place layout.Place
	since uint64 // reclaim version at which the place was good
	held  bool   // the server keeps it, until the time below
	until int64
}

// largeSource copies the head out of the get's buffer: the get then holds no
// buffer while it waits for others.
func (s *session) largeSource(g *get) *source {
	head := append([]byte(nil), g.item.Head()...)
	item, err := layout.ParseItem(head, s.incarnation, g.loc.Place)
	if err != nil { // it has just been verified
		panic(fmt.Sprintf("client: verified item does not parse: %v", err))
	}
	return &source{item: item, place: g.loc.Place, since: g.grant.retired.version}
}

// A window is some chunks under way.
type window struct {
	b        *batch
	grant    *grant
	from, to int // chunks
}

// readLarge appends the wanted bytes of src. It fails with errMoved if the item
// is gone, or its hold over; w.dst then holds what came before, in order.
func (s *session) readLarge(p *patience, src *source, w *want) error {
	from, to, err := w.span(int64(src.item.ValLen))
	if err != nil || from == to {
		return err
	}
	if w.sink != nil && !w.sink.takes(int64(src.item.ValLen)) {
		return w.sink.tooSmall(int64(src.item.ValLen))
	}
	base := len(w.dst)
	w.grow(int(to - from))
	if err = s.readChunks(p, src, w, from, to); err != nil {
		if !src.held {
			w.dst = w.dst[:base]
		}
		return err
	}
	s.c.n.largeReads.Add(1)
	return nil
}

// readChunks keeps two windows in flight: while one is verified and copied, the
// next one travels.
func (s *session) readChunks(p *patience, src *source, w *want, from, to int64) error {
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
			if cur, err = s.postWindow(p, src, w, next, last, true); err != nil {
				return err
			}
			next = cur.to
		}
		if next <= last {
			var err error
			if ahead, err = s.postWindow(p, src, w, next, last, false); err != nil {
				cur.settle(p)
				return err
			}
			if ahead != nil {
				next = ahead.to
			}
		}
		if err := s.takeWindow(p, src, cur, w, from, to); err != nil {
			return err
		}
	}
	return nil
}

// postWindow READs the next chunks. With must it waits for a buffer and for
// space in the send queue; else it returns nil when they are not free.
func (s *session) postWindow(p *patience, src *source, w *want, next, last int, must bool) (*window, error) {
	win := &window{grant: s.lease.current.Load(), from: next, to: min(next+windowChunks, last+1)}
	if !src.held && win.grant.retired.retired(src.place, uint32(src.item.Size), src.since) {
		return nil, errMoved
	}
	win.b = s.newBatch(s.view.Load())
	for i := win.from; i < win.to; i++ {
		off, n := src.item.ChunkRange(i)
		at := src.place + layout.PlaceOfByte(uint64(src.item.ValueOffset()+off))
		if _, err := win.b.add(at, (n+7)&^7); err != nil {
			win.b.release()
			return nil, errMoved
		}
	}
	if ok, err := win.b.room(p, w, next*layout.ChunkSize, must); !ok {
		win.b.release()
		return nil, err
	}
	if err := win.b.post(p); err != nil {
		if !errors.Is(err, errAbandoned) {
			win.b.release()
		}
		if errors.Is(err, errNoRegion) {
			err = errMoved
		}
		return nil, err
	}
	return win, nil
}

// takeWindow waits for a window, decides whether it counts, verifies and
// appends.
func (s *session) takeWindow(p *patience, src *source, win *window, w *want, from, to int64) error {
	mine, err := win.b.wait(p)
	if !mine {
		return err
	}
	defer win.b.release()
	if err != nil {
		return err
	}
	now := s.now()
	if src.held {
		if now >= src.until {
			return errMoved
		}
	} else if !s.lease.holds(win.grant, now) && !teeth.Off(teeth.F4ChunkLease) {
		s.c.n.expired.Add(1)
		return errMoved
	}
	for i := win.from; i < win.to; i++ {
		off, n := src.item.ChunkRange(i)
		data := win.b.bytes(i - win.from)[:n]
		if !src.item.VerifyChunk(i, data) {
			if src.held {
				s.suspects.add(suspect{key: bytes.Clone(src.item.Key()), sure: true,
					torn: layout.Loc{Place: src.place, Size: uint32(src.item.Size), Version: src.item.Version}})
				s.c.poke()
			}
			return errMoved
		}
		if win.b.buf.block.owner != nil {
			w.dst = w.dst[:off+n] // it stands there
			continue
		}
		lo, hi := max(from-int64(off), 0), min(to-int64(off), int64(n))
		w.dst = append(w.dst, data[lo:hi]...)
	}
	return nil
}

// settle waits for a window whose bytes nobody wants any more.
func (win *window) settle(p *patience) {
	if mine, _ := win.b.wait(p); mine {
		win.b.release()
	}
}

// A heldRead is how far a value has been read over several holds.
type heldRead struct {
	version  uint64
	valueLen uint32
	taken    int // bytes in want.dst that are of this version
}

// readHeld READs an item that the server holds. errMoved means that the hold
// was over before all was read; what was read stays in w.dst and counts if the
// next hold is of the same version.
func (s *session) readHeld(p *patience, h *heldRead, hold wire.Hold, valueLen uint32, version uint64, asked int64, key []byte, w *want) error {
	if h.version != version || h.valueLen != valueLen { // the length: a server may lie
		w.dst = w.dst[:len(w.dst)-h.taken]
		*h = heldRead{version: version, valueLen: valueLen}
	}
	if s.sendOnly || hold.Place == uint64(layout.Nowhere) {
		return s.fetchHeld(p, h, hold, valueLen, asked, key, w)
	}
	src, b, err := s.readHeldHead(p, hold, valueLen, version, key)
	if err != nil {
		return err
	}
	src.until = asked + s.lease.length // the server holds for a lease after its reply
	w.info.Expiry = expiryTime(src.item.Expiry)
	if src.item.Chunks == 0 {
		defer b.release()
		if s.now() >= src.until {
			return errMoved
		}
		return w.take(src.item.Value())
	}
	b.release()
	// The rest of what is wanted, behind what former holds have brought.
	from, to, err := w.span(int64(valueLen))
	if err != nil {
		return err
	}
	rest := want{off: from + int64(h.taken), n: to - from - int64(h.taken), dst: w.dst}
	before := len(w.dst)
	err = s.readLarge(p, src, &rest)
	w.dst = rest.dst
	h.taken += len(w.dst) - before
	return err
}

// readHeldHead READs and verifies the head of a held item, or all of a small
// one. The item of a small one stands in the batch, that of a large one has a
// copy of its own.
func (s *session) readHeldHead(p *patience, hold wire.Hold, valueLen uint32, version uint64, key []byte) (*source, *batch, error) {
	head, err := heldHead(hold, valueLen)
	if err != nil {
		s.fail(err)
		return nil, nil, err
	}
	place := layout.Place(hold.Place)
	b := s.newBatch(s.view.Load())
	if _, err := b.add(place, head); err != nil {
		b.release()
		// The region is younger than our view.
		if err := s.refreshView(p); err != nil {
			return nil, nil, err
		}
		return nil, nil, errMoved
	}
	mine, err := b.run(p)
	if err != nil {
		if mine {
			b.release()
		}
		if errors.Is(err, errNoRegion) {
			err = errMoved
		}
		return nil, nil, err
	}
	bytes := b.bytes(0)
	if valueLen > layout.ChunkSize {
		bytes = append([]byte(nil), bytes...)
	}
	item, err := layout.ParseItem(bytes, s.incarnation, place)
	if err != nil || uint64(item.Version) != version || item.ValLen != int(valueLen) || string(item.Key()) != string(key) {
		b.release()
		return nil, nil, errMoved // the hold was over before we came
	}
	return &source{item: item, place: place, held: true}, b, nil
}

// letGo gives a held place back before its time. Nobody waits for the reply; if
// no slot or credit is free the server's own clock does it.
func (s *session) letGo(p *patience, id uint64) {
	sl := s.tryOpen(p)
	if sl == nil {
		return
	}
	if sl.post(wire.AppendRelease(sl.buf[:0], sl.id(), wire.Release{ID: id})) == nil {
		s.d.Detach(sl.op)
	}
}
