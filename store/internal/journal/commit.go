package journal

import (
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/log"
)

// A sealed is the frame of a commit on its way.
type sealed struct {
	frame   *log.Frame
	offsets []int // by flight: of its record in the frame; noRecord: it has none
}

const noRecord = -1

var sealedPool = sync.Pool{New: func() any { return new(sealed) }}

// Overhead bounds what a write takes in a frame besides what it was admitted with: the heads
// of its record and its body, its effects, its result. The pipeline counts it where it cuts
// commits, so that a commit fits into a frame.
func Overhead(f *flight.Flight) int64 { return 192 + 64*int64(len(f.Effects)) }

// Append gives a commit its place in the log: one frame with a record for each of its writes
// that changes anything. It returns when the frame has its position, and does not wait for
// the disk; but a value that is larger than a record goes before it, in pieces. Called by one
// goroutine.
//
// A commit of which nothing stands in the log has no frame. It is published behind the
// commits before it all the same, because the pipeline publishes in order.
func (j *Journal) Append(c *pipeline.Commit) error {
	var s *sealed
	room := int64(0)
	for i, f := range c.Flights {
		room += f.Room
		if err := j.putBytes(f); err != nil {
			return err
		}
		n, pieces, err := j.prepare(c, f)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		if s == nil {
			s = j.begin(len(c.Flights))
		}
		s.offsets[i] = s.frame.Bytes()
		body, err := s.frame.Add(&log.Record{Kind: log.Write, Stream: Stream}, n)
		if err != nil {
			s.frame.Drop()
			return fmt.Errorf("a commit of %d writes: %w", len(c.Flights), err)
		}
		if pieces != nil {
			logged.PutApart(body, f, j.most, pieces)
		} else {
			logged.Put(body, f)
		}
	}
	if s != nil {
		if err := s.frame.Seal(); err != nil {
			s.frame.Drop()
			return err
		}
		for i, f := range c.Flights {
			if s.offsets[i] != noRecord {
				f.At = s.frame.PositionOf(s.offsets[i])
				j.usedBytes(f)
			}
		}
		c.Log = s
	}
	// What is sealed counts as used; what the gate had set aside for it is free again.
	j.log.Unreserve(room)
	return nil
}

// begin returns an empty frame for so many writes.
func (j *Journal) begin(writes int) *sealed {
	s := sealedPool.Get().(*sealed)
	s.frame, s.offsets = j.log.Begin(), s.offsets[:0]
	for range writes {
		s.offsets = append(s.offsets, noRecord)
	}
	return s
}

// prepare returns how many bytes a write's record has; 0: none. If its value is too large for
// a record, it is in the log when prepare returns, in the pieces at these positions. Such a
// write is alone in its commit, because it is larger than what the pipeline takes together:
// so nothing stands between its pieces and its record but facts, and a checkpoint has both or
// neither.
func (j *Journal) prepare(c *pipeline.Commit, f *flight.Flight) (n int, pieces []uint64, err error) {
	if !logged.Apart(f, j.most) {
		return logged.Size(f), nil, nil
	}
	if len(c.Flights) != 1 {
		panic(fmt.Sprintf("store: a write of %d bytes in a commit of %d writes", f.Charge, len(c.Flights)))
	}
	for i := range logged.Pieces(f, j.most) {
		frame := j.log.Begin()
		body, err := frame.Add(&log.Record{Kind: log.Write, Stream: Stream}, logged.PieceSize(f, i, j.most))
		if err != nil {
			frame.Drop()
			return 0, nil, fmt.Errorf("piece %d of a value: %w", i, err)
		}
		logged.PutPiece(body, f, i, j.most)
		at, err := j.pass(frame)
		if err != nil {
			return 0, nil, err
		}
		pieces = append(pieces, uint64(at))
	}
	return logged.SizeApart(f, j.most), pieces, nil
}

// pass takes a frame that changes nothing that readers see all the way, and returns where its
// first record stands.
func (j *Journal) pass(frame *log.Frame) (log.Position, error) {
	if err := frame.Seal(); err != nil {
		frame.Drop()
		return 0, err
	}
	at := frame.PositionOf(0)
	err := frame.Write()
	if err == nil {
		err = frame.Turn()
	}
	frame.Pass()
	return at, err
}

// Sync returns when a commit is durable, as far as the policy goes, and all before it are
// published.
func (j *Journal) Sync(c *pipeline.Commit) error {
	s, ok := c.Log.(*sealed)
	if !ok {
		return nil
	}
	for _, f := range c.Flights {
		if err := j.flushBytes(f); err != nil {
			return err
		}
	}
	if err := s.frame.Write(); err != nil {
		return err
	}
	return s.frame.Turn()
}

// PublishWrites makes writes visible whose records stand in the log already, in their order.
func (j *Journal) PublishWrites(writes []*flight.Flight, shards []*shard.Shard, results *dedup.Table) {
	j.publishing.Lock()
	defer j.publishing.Unlock()
	shard.PublishAll(shards, writes, results)
}

// Publish makes a commit that is durable visible, and lets the next frame have its turn: a
// checkpoint may take the writes into the base from here on.
func (j *Journal) Publish(c *pipeline.Commit, shards []*shard.Shard, results *dedup.Table) {
	j.publishing.Lock()
	shard.PublishAll(shards, c.Flights, results)
	j.publishing.Unlock()
	if s, ok := c.Log.(*sealed); ok {
		s.frame.Pass()
		s.frame, c.Log = nil, nil
		sealedPool.Put(s)
	}
}
