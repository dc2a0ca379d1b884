package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// An item that does not verify is mostly being written: READ again, it does. If
// it says that it is live, and does not change, and still does not verify, then
// memory is damaged, and only a client that READs it one-sidedly may ever notice. The get
// that met it has asked by SEND; what it met is examined afterwards, by the
// keeper, and reported to the server, which looks for itself and repairs.
//
// Nothing rests on a report: a false one costs the server one look.

const (
	// maxSuspects bounds the items that wait to be examined; others are dropped,
	// for the next get will meet them again.
	maxSuspects = 8
	// An item is READ looks times in all, with a rest in between in which a put
	// that is under way gets on.
	looks    = 4
	LookRest = 2 * time.Millisecond
	// againAfter is for how long a place that was reported is not examined again.
	againAfter = 10 * time.Second
)

// A suspect is an item that did not verify.
type suspect struct {
	key  []byte
	torn layout.Loc
	sure bool // the server holds it still: nothing writes there
}

// suspects are the items of a session that wait for the keeper.
type suspects struct {
	queue chan suspect
	// Of the keeper alone: the places that were reported, and when.
	told map[layout.Place]time.Time
}

func (q *suspects) start() {
	q.queue = make(chan suspect, maxSuspects)
	q.told = make(map[layout.Place]time.Time)
}

// Suspect has the keeper look at what a get could not verify in all its rounds.
func (s *Session) Suspect(key []byte, torn layout.Loc) {
	if torn.Size == 0 {
		return
	}
	s.suspects.add(suspect{key: bytes.Clone(key), torn: torn})
	s.Owner.Wake()
}

// SuspectHeld has the keeper report what the server holds still and what does not
// verify all the same.
func (s *Session) SuspectHeld(key []byte, torn layout.Loc) {
	s.suspects.add(suspect{key: bytes.Clone(key), torn: torn, sure: true})
	s.Owner.Wake()
}

func (q *suspects) add(x suspect) {
	select {
	case q.queue <- x:
	default:
	}
}

// examine looks at the suspects there are. The keeper has other things to do,
// so it takes no more time than a lease allows.
func examine(ctx context.Context, s *Session) {
	ctx, cancel := context.WithTimeout(ctx, s.Welcome.Lease/4)
	defer cancel()
	p := s.Clock.Unlimited(ctx)
	for range maxSuspects {
		select {
		case x := <-s.suspects.queue:
			examineOne(s, &p, x)
		default:
			return
		}
	}
}

func examineOne(s *Session, p *base.Limit, x suspect) {
	q := &s.suspects
	if time.Since(q.told[x.torn.Place]) < againAfter { // never told is long ago
		return
	}
	if x.sure {
		tellDamage(s, p, x)
		return
	}
	var first []byte
	for i := range looks {
		if i > 0 {
			p.Rest(LookRest)
		}
		now, err := readItem(s, p, x.torn)
		if err != nil || !damaged(now, s.Incarnation, x.torn.Place) {
			return
		}
		if first == nil {
			first = now
		} else if !bytes.Equal(first, now) {
			return // a put is writing there
		}
	}
	x.torn.Version = layout.Version(binary.LittleEndian.Uint64(first) >> 8) // as it says itself
	tellDamage(s, p, x)
}

// damaged reports that the bytes at a place say that they are a live item, and
// do not verify.
func damaged(b []byte, incarnation uint64, place layout.Place) bool {
	if len(b) < layout.ItemHeaderSize || layout.State(b[0]) != layout.Live {
		return false
	}
	_, err := layout.ParseItem(b, incarnation, place)
	return err != nil && !errors.Is(err, layout.ErrShort) // more of it would have to be READ
}

// readItem is a copy of what stands at a place.
func readItem(s *Session, p *base.Limit, at layout.Loc) ([]byte, error) {
	b := s.NewReads(s.view.Load())
	if _, err := b.Add(at.Place, int(at.Size)); err != nil {
		b.Release()
		return nil, err
	}
	mine, err := b.Run(p)
	if !mine {
		return nil, err
	}
	defer b.Release()
	if err != nil {
		return nil, err
	}
	return bytes.Clone(b.Bytes(0)), nil
}

// tellDamage sends a report, and does not wait for the reply.
func tellDamage(s *Session, p *base.Limit, x suspect) {
	sl := s.TryOpen(p)
	if sl == nil {
		return // the next get will meet it again
	}
	d := wire.Damage{
		Place: uint64(x.torn.Place), Version: uint64(x.torn.Version),
		Shard: cluster.ShardOf(x.key, int(s.Welcome.Shards)), Key: x.key,
	}
	if sl.Post(wire.AppendReport(sl.Buf[:0], sl.ID(), nil, []wire.Damage{d})) != nil {
		return
	}
	sl.Detach()
	s.Counts.Damaged.Add(1)
	s.Log.Warn("the server's memory is damaged", "server", s.Addr, "key", base.QuoteKey(x.key), "place", x.torn.Place)
	q := &s.suspects
	if len(q.told) >= 64*maxSuspects {
		clear(q.told)
	}
	q.told[x.torn.Place] = time.Now()
}
