package checkpoint

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// A value that is larger than a frame of the log stands in pieces before the record of its
// write (package logged). The pieces wait in the range for the record:
//
//	... | piece | fact | piece | the write | ...
//	     <-------- waiting --->
//
// The record joins them. A piece of another write, or the record of one, says that the
// write of those that wait was never logged, because workers log one write behind
// the other: they are dropped. So the pieces of one write wait at a time.
//
// A fact in between waits as well, because the base may get the position of the first
// piece: if it had the fact then, it would not be the state at its position.

// pieces are those of one write, in the order of the log.
type pieces struct {
	version layout.Version
	list    []waitingPiece
	facts   map[string][]byte // the newest of each name that stands behind the first piece
	used    int               // bytes
}

type waitingPiece struct {
	at   log.Position
	body []byte
}

const (
	// perPiece is what a piece takes beside its body.
	perPiece = 64
	// maxWaiting bounds what the pieces of one write may take: a value or a batch of the
	// largest size, whose pieces are no smaller than frames or values.
	maxWaiting = layout.MaxValueLen + base.MaxBatchBytes
)

// any says whether pieces wait.
func (p *pieces) any() bool { return len(p.list) > 0 }

// addFact notes a fact that stands behind the first piece.
func (p *pieces) addFact(name string, body []byte) {
	if p.facts == nil {
		p.facts = map[string][]byte{}
	}
	p.used += len(body) - len(p.facts[name])
	p.facts[name] = bytes.Clone(body)
}

// read returns the body of the piece at a position.
func (p *pieces) read(at uint64) ([]byte, error) {
	i, ok := slices.BinarySearchFunc(p.list, log.Position(at), func(w waitingPiece, at log.Position) int {
		return int(min(max(int64(w.at-at), -1), 1))
	})
	if !ok {
		return nil, fmt.Errorf("%w: no piece of the write stands before it at %v", ErrRecord, log.Position(at))
	}
	return p.list[i].body, nil
}

// Waiting returns the position of the first piece whose write has not come; ok says whether
// there is one. The range says nothing of that record and of those behind it: a base that
// gets the range now is the state at that position.
func (r *Range) Waiting() (at log.Position, ok bool) {
	if !r.waiting.any() {
		return 0, false
	}
	return r.waiting.list[0].at, true
}

// DropBefore drops the pieces that wait if they stand before a position, where the caller
// knows that their write does not come: a process began to write the log there.
func (r *Range) DropBefore(at log.Position) {
	if first, ok := r.Waiting(); ok && first < at {
		r.settle()
	}
}

// addPiece adds a piece to those that wait.
func (r *Range) addPiece(rec *log.Record) error {
	p, err := logged.ParsePiece(rec.Body)
	if err != nil {
		return err
	}
	if p.Version != r.waiting.version {
		r.settle()
	}
	w := &r.waiting
	if w.used+len(rec.Body)+perPiece > maxWaiting {
		return fmt.Errorf("%w: the pieces of write %v have more than %d bytes", ErrRecord, p.Version, maxWaiting)
	}
	if last := len(w.list) - 1; last >= 0 && w.list[last].at >= rec.Position {
		return fmt.Errorf("%w: it comes behind the piece at %v", ErrRecord, w.list[last].at)
	}
	w.version, w.used = p.Version, w.used+len(rec.Body)+perPiece
	w.list = append(w.list, waitingPiece{rec.Position, bytes.Clone(rec.Body)})
	return nil
}

// settle ends the wait: the pieces are joined or dropped, and the facts that stood behind
// the first one count.
func (r *Range) settle() {
	for name, body := range r.waiting.facts {
		r.setFact(name, body)
	}
	r.waiting = pieces{}
}

// A placed value stands in the memory of a range, behind its key of Pebble.
type placed struct {
	at   ref
	size int
}

// joined puts the values of a write that stand in pieces into the memory of the range.
// Nothing refers to them yet, so after an error the range is as it was.
func (r *Range) joined(w *logged.Write) (values []placed, err error) {
	for e := range w.Effects {
		if !e.Apart {
			continue
		}
		r.key = disk.AppendKey(r.key[:0], e.Shard, disk.KindData, e.Key)
		v := placed{size: logged.Length(&e)}
		if v.size > r.waiting.used {
			return nil, fmt.Errorf("%w: a value of %d bytes, and the pieces before it have %d", ErrRecord, v.size, r.waiting.used)
		}
		at, b := r.memory.take(len(r.key) + v.size)
		copy(b, r.key)
		if err := w.JoinTo(b[len(r.key):], e, r.waiting.read); err != nil {
			return nil, err
		}
		v.at = at
		values = append(values, v)
	}
	return values, nil
}
