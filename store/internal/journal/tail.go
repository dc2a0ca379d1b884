package journal

import (
	"context"
	"errors"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// A tail is the log of a stopped store, which is read and never changed.
type tail struct {
	log    *log.Log
	place  checkpoint.Place
	values *tables.Values
	mark   disk.ValuesMark
}

// OpenTail opens the log of a stopped store to be read (disk.OpenTail): all of it is
// verified. Damage is an error, because what stands behind it is not known; it has all
// damages that are found in the files of the log.
func OpenTail(ctx context.Context, c disk.TailConfig) (disk.Tail, error) {
	t := &tail{}
	if c.Place != nil {
		place, err := checkpoint.ParsePlace(c.Place)
		if err != nil {
			return nil, &base.CorruptError{Shard: disk.StoreShard, Key: []byte("position"), Err: err}
		}
		t.place = place
	}
	var err error
	if t.mark, err = disk.ParseValuesMark(c.Mark); err != nil {
		return nil, err
	}
	if c.Values != nil {
		if t.values, err = c.Values(); err != nil {
			return nil, err
		}
	}
	l, err := log.Open(log.Config{Dir: c.Dir, Store: c.Store, ReadOnly: true, Reach: c.Reach, From: t.place.Frame})
	if err != nil {
		return nil, damages(ctx, c.Dir, err)
	}
	if err := l.Replay(func(*log.Record) error { return ctx.Err() }); err != nil {
		_ = l.Close(false) // it was read alone, and what is wrong with it counts
		return nil, damages(ctx, c.Dir, err)
	}
	t.log = l
	return t, nil
}

// damages returns why a log is not read: first, with what else is damaged in its files. An
// opening ends at the first damage; whoever is to mend a store asks for all.
func damages(ctx context.Context, dir log.Dir, first error) error {
	all := disk.Damages{Fault(first)}
	if !errors.Is(first, log.ErrDamaged) {
		return all[0]
	}
	in, err := log.Inspect(ctx, dir, log.InspectOptions{})
	if err != nil {
		all = append(all, err)
	}
	told := new(base.CorruptError)
	_ = errors.As(all[0], &told)
	for _, err := range in.Problems {
		var damage *base.CorruptError
		if err = Fault(err); errors.As(err, &damage) && damage.File == told.File {
			continue // the first again, in other words
		}
		all = append(all, err)
	}
	return all
}

// Found returns the newest epoch that the log knows, and whether its last life ended by a
// clean stop.
func (t *tail) Found() (epoch uint64, clean bool) {
	f := t.log.Found()
	return f.Epoch, f.Clean
}

// Write writes what the log has behind the base, range by range.
func (t *tail) Write(ctx context.Context, to disk.TailSink) error {
	place, epoch, mark := t.place, t.log.Found().Epoch, t.mark
	for more := true; more; {
		r, next, rest, err := checkpoint.Next(ctx, checkpoint.Config{
			Log: t.log, Stream: Stream, From: place, Epoch: epoch, Facts: factNames,
			Bytes: t.bytes(), Mark: mark,
		})
		if err != nil {
			return Fault(err)
		}
		if err := writeRange(r, to); err != nil {
			return err
		}
		place, more, mark = next, rest, r.Mark()
	}
	return nil
}

// bytes are the tables of values; nil: there are none.
func (t *tail) bytes() checkpoint.Bytes {
	if t.values == nil {
		return nil
	}
	return t.values
}

// writeRange writes one range.
func writeRange(r *checkpoint.Range, to disk.TailSink) (err error) {
	values, err := to.Values()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, values.Close()) }()
	_, err = r.Write(to, values)
	return err
}

// Close closes the log, which is as it was.
func (t *tail) Close() error { return t.log.Close(false) }
