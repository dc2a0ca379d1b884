package checkpoint

import (
	"context"
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	groupentry "github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/log"
)

// errFull ends a scan before a record for which there is no room in the range.
var errFull = errors.New("checkpoint: the range is full")

// A reader makes a range of what stands in the log between the base's position and
// another.
type reader struct {
	c     *Config
	to    log.Position
	r     *Range
	place Place // where the range ends
	more  bool

	frame log.Position // of the record that is visited
	piece Place        // At and Frame of the first piece that waits for its write
	began log.Position // where this process began to write the log

	states []groupentry.State // of Config.Groups, where the range ends
}

// read makes the range of what stands between the base's position and another, which is
// no later than what has passed.
//
// The range ends between no piece and the record of its write, so that whoever finds the
// record of a dirty write in the log finds its pieces there as well: what the base has is
// freed. If the range is full, or to is reached, while pieces wait, it ends before the
// first of them. One exception lets large values through: if they are the first in the
// range they are read up to their write, however full the range is.
func (c *Config) read(ctx context.Context, to, passed log.Position) (*reader, error) {
	d := &reader{
		c: c, to: to, r: NewRange(c.Stream, c.Facts, c.Bound), began: c.Log.Found().End,
		place: Place{At: c.From.At, Newest: c.From.Newest, Epoch: c.Epoch},
	}
	p := pace{c: c, began: c.Now(), next: paceStep}
	// The groups have half of the range, and the stream what is left of it, so that none keeps
	// the others out.
	if err := d.groups(ctx, &p); err != nil {
		return nil, err
	}
	if to > c.From.At {
		if err := d.stream(ctx, &p, passed); err != nil {
			return nil, err
		}
	} else {
		d.place.Frame = c.From.Frame
	}
	d.place.Newest = max(d.place.Newest, d.r.Newest())
	d.r.key = append(d.r.key[:0], PositionKey()...)
	d.r.set(0, 0, d.place.encode())
	return d, nil
}

// stream adds what the stream has.
func (d *reader) stream(ctx context.Context, p *pace, passed log.Position) error {
	c := d.c
	// A frame that ends behind to is read whole, for its sum, so the scan goes on to what
	// has passed, and the visit stops it.
	end, err := c.Log.ScanFrames(c.From.Frame, passed, func(at log.Position) { d.frame = at }, func(rec *log.Record) error {
		if rec.Position < c.From.At {
			return nil // of the frame in which the base's position stands
		}
		if err := d.ends(rec.Position); err != nil {
			return err
		}
		if err := p.read(ctx, len(rec.Body)); err != nil {
			return err
		}
		return d.add(rec)
	})
	if err != nil && !errors.Is(err, errFull) {
		return err
	}
	if err == nil {
		d.place.At, d.place.Frame = end, end
		if passed >= d.began {
			d.r.DropBefore(d.began)
		}
	}
	if _, waits := d.r.Waiting(); waits {
		d.place.At, d.place.Frame = d.piece.At, d.piece.Frame
	}
	return nil
}

// ends returns errFull if the range ends before the record at a position.
func (d *reader) ends(at log.Position) error {
	if at >= d.began {
		// Who wrote these pieces has stopped, and does not log their write any more.
		d.r.DropBefore(d.began)
	}
	full := d.r.Full()
	if first, waits := d.r.Waiting(); waits && first <= d.c.From.At {
		full = false // or the base would never get further
	}
	if at < d.to && !full {
		return nil
	}
	d.more = d.more || at < d.to
	d.place.At, d.place.Frame = at, d.frame
	return errFull
}

// add adds a record, and notes where the pieces begin that wait.
func (d *reader) add(rec *log.Record) error {
	if rec.Stream != d.c.Stream {
		return nil
	}
	if err := d.r.Add(rec); err != nil {
		return err
	}
	if first, waits := d.r.Waiting(); waits && first == rec.Position {
		d.piece.At, d.piece.Frame = first, d.frame
	}
	return nil
}

// A pace keeps a reader of the log below a rate. It alone looks at a clock.
type pace struct {
	c     *Config
	began time.Time
	bytes int64
	next  int64 // bytes at which the clock is looked at again
}

const (
	defaultReadRate = 200 << 20
	// paceStep is after how many bytes the clock is looked at, and ctx.
	paceStep = 256 << 10
)

// read counts bytes that were read, and waits if they came too soon. What was read is
// counted without heads; the disk reads a little more.
func (p *pace) read(ctx context.Context, n int) error {
	p.bytes += int64(n)
	if p.bytes < p.next {
		return nil
	}
	p.next = p.bytes + paceStep
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.c.ReadRate < 0 {
		return nil
	}
	due := time.Duration(float64(p.bytes) / float64(p.c.ReadRate) * float64(time.Second))
	if ahead := due - p.c.Now().Sub(p.began); ahead > 0 {
		return p.c.Sleep(ctx, ahead)
	}
	return nil
}

// sleep waits for a time, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Next makes the range of what stands in a log that nobody writes, from c.From on up to where
// the log ends or the range is full; more says that there is more. c has Log, which was
// replayed, Stream, From, Facts and Bound. It is for those who look at a store that is
// stopped: nothing goes into a base.
func Next(ctx context.Context, c Config) (r *Range, place Place, more bool, err error) {
	c = c.withDefaults()
	c.ReadRate = -1
	end := c.Log.Found().End
	d, err := c.read(ctx, end, end)
	if err != nil {
		return nil, Place{}, false, err
	}
	if c.Bytes != nil {
		d.r.from(&c, nil)
	}
	return d.r, d.place, d.more, nil
}

// Mark is what the base says of tables of values when it has the range: the Mark of the next.
func (r *Range) Mark() disk.ValuesMark { return r.mark }
