package log

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
	"github.com/rdmakv/rdmakv/store/log/internal/streams"
)

// An opening is a log between Open and Start: what it has found. Nothing of it is used
// when a life has begun.
type opening struct {
	*Log
	found  Found
	chain  []*segment // in force, by number
	void   []*segment // behind the cut of a later life, or of this one
	newest uint64     // the highest segment number of all, chain or not
	life   uint64     // of the newest segment; 0: there is none
}

// Open reads which segments there are, and compares what the headers, LIFE and the caller
// know of the log. Replay must come next. It changes nothing that could be missed by a
// second try. Errors: a *DamageError, ErrNoLog, ErrForeign, and what the disk says.
func Open(c Config) (*Log, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Log{c: c, holds: make(map[*hold]struct{}), syncing: make(chan struct{}, 1), upkeep: newUpkeep(), table: streams.New(streams.Limits{})}
	l.cond.L = &l.mu
	l.upkeep.making.L = &l.mu
	l.w.Log, l.upkeep.Log, l.opening = l, l, &opening{Log: l}
	if err := l.opening.open(); err != nil {
		err = errors.Join(err, l.segs.close())
		if l.book != nil {
			err = errors.Join(err, l.book.f.Close())
		}
		return nil, err
	}
	return l, nil
}

// open is Open after the configuration.
func (o *opening) open() error {
	names, err := o.c.Dir.List()
	if err != nil {
		return fmt.Errorf("log: list: %w", err)
	}
	if err := o.openBook(names); err != nil {
		return err
	}
	if err := o.tidy(names); err != nil {
		return err
	}
	if err := o.probe(); err != nil {
		return err
	}
	if err := o.load(names); err != nil {
		return err
	}
	if !o.readsDirect && !o.c.ReadOnly {
		return o.settle()
	}
	return nil
}

// openBook opens LIFE, or makes it for a new log.
func (o *opening) openBook(names []string) (err error) {
	o.book, err = openLife(o.c.Dir, o.c.Store, !o.c.ReadOnly)
	if !errors.Is(err, ErrNoLog) {
		return err
	}
	for _, name := range names {
		if _, ok := segmentNumber(name); ok {
			return &DamageError{File: lifeFile, Detail: "it is missing, and there are segments"}
		}
	}
	if !o.c.Create || o.c.ReadOnly || o.c.Reach != 0 || o.c.From != 0 {
		return ErrNoLog
	}
	o.book, err = createLife(o.c.Dir, o.c.Store, o.made())
	return err
}

// tidy removes what an opening or a making that was cut short has left, and collects the
// free files.
func (o *opening) tidy(names []string) error {
	for _, name := range names {
		serial, free := freeSerial(name)
		switch _, seg := segmentNumber(name); {
		case seg || name == lifeFile:
		case free:
			o.segs.serial = max(o.segs.serial, serial)
			size, err := o.sizeOf(name)
			if err != nil {
				return err
			}
			if size == o.c.SegmentSize {
				o.segs.free = append(o.segs.free, name)
				continue
			}
			fallthrough // of another configuration
		case strings.HasSuffix(name, newSuffix):
			if o.c.ReadOnly {
				continue
			}
			if err := o.c.Dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("log: remove %s: %w", name, err)
			}
		default:
			o.c.Logger.Warn("a file in the log's directory is not the log's", "file", name)
		}
	}
	return nil
}

// sizeOf returns the size of a file.
func (o *opening) sizeOf(name string) (int64, error) {
	f, err := o.c.Dir.Open(name, Access{})
	if err != nil {
		return 0, fmt.Errorf("log: open %s: %w", name, err)
	}
	size, err := f.Size()
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("log: %s: %w", name, err)
	}
	return size, nil
}

// probe finds out whether files can be accessed directly here, and the block.
func (o *opening) probe() error {
	o.block = format.MinBlock
	f, err := o.c.Dir.Open(lifeFile, Access{Direct: true})
	if errors.Is(err, ErrNoDirect) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("log: open %s: %w", lifeFile, err)
	}
	block := int64(f.Block())
	if err := f.Close(); err != nil {
		return fmt.Errorf("log: close %s: %w", lifeFile, err)
	}
	if block > format.MaxBlock {
		return nil
	}
	o.block = max(o.block, block)
	o.readsDirect = true
	o.writesDirect = o.c.Sync == Always
	return nil
}

// load reads the headers of all segments, builds the chain, and compares it with what LIFE
// and the caller know.
func (o *opening) load(names []string) error {
	var all []*segment
	for _, name := range names {
		number, ok := segmentNumber(name)
		if !ok {
			continue
		}
		seg, err := o.openSegment(name, number)
		if err != nil {
			return err
		}
		o.segs.force = append(o.segs.force, seg) // so that its files are closed
		all = append(all, seg)
	}
	if !o.c.ReadOnly {
		// What stands in the page cache alone must not be told: it could be gone after a
		// power cut.
		if err := o.c.Dir.Sync(); err != nil {
			return fmt.Errorf("log: sync the directory: %w", err)
		}
	}
	slices.SortFunc(all, func(a, b *segment) int { return cmp.Compare(a.header.Number, b.header.Number) })
	chain, void, err := link(all)
	if err != nil {
		return err
	}
	o.chain, o.void, o.newest, o.life = chain, void, 0, 0
	if n := len(chain); n > 0 {
		o.newest, o.life = chain[n-1].header.Number, chain[n-1].header.Life
	}
	o.segs.force = chain
	if err := o.book.check(o.life); err != nil {
		return errors.Join(err, closeAll(void))
	}
	return errors.Join(o.compare(), closeAll(void))
}

// closeAll closes the files of segments.
func closeAll(segs []*segment) (err error) {
	for _, s := range segs {
		err = errors.Join(err, s.close())
	}
	return err
}

// openSegment opens a segment that an earlier life has left, syncs it, and reads its
// header.
func (o *opening) openSegment(name string, number uint64) (_ *segment, err error) {
	seg := &segment{name: name, left: true, synced: true}
	if !o.c.ReadOnly {
		f, err := o.c.Dir.Open(name, Access{Write: true})
		if err != nil {
			return nil, fmt.Errorf("log: open %s: %w", name, err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return nil, fmt.Errorf("log: sync %s: %w", name, err)
		}
	}
	seg.reader, err = o.c.Dir.Open(name, Access{Direct: o.readsDirect})
	if err != nil {
		return nil, fmt.Errorf("log: open %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, seg.close())
		}
	}()
	if seg.size, err = seg.reader.Size(); err != nil {
		return nil, fmt.Errorf("log: %s: %w", name, err)
	}
	b := aligned(format.MaxBlock, format.MaxBlock)[:min(format.MaxBlock, seg.size&^(format.MinBlock-1))]
	if len(b) > 0 {
		if _, err := seg.reader.ReadAt(b, 0); err != nil {
			return nil, fmt.Errorf("log: read %s: %w", name, err)
		}
	}
	seg.header, err = format.ParseHeader(b)
	var newer *format.NewerError
	switch {
	case errors.As(err, &newer):
		return nil, fmt.Errorf("log: %s: %w", name, err)
	case err != nil:
		return nil, &DamageError{File: name, Detail: "its header is damaged", Err: err}
	case seg.header.Store != o.c.Store:
		return nil, fmt.Errorf("%w: %s is of store %x, expected %x", ErrForeign, name, seg.header.Store, o.c.Store)
	case seg.header.Number != number:
		return nil, &DamageError{File: name, Detail: fmt.Sprintf("its header says number %d", seg.header.Number)}
	case seg.size > seg.header.Size:
		return nil, &DamageError{File: name, Detail: fmt.Sprintf("%d bytes, its header says %d", seg.size, seg.header.Size)}
	}
	seg.end = format.At(number, int64(seg.header.Block))
	return seg, nil
}

// link follows the cuts from the newest segment back. A segment between a segment and its
// cut is void: a start has found that the log ended before it. A cut that leads to a file
// that is not there is damage, unless nothing older is there either: then it was freed.
// Only the first segment of all has no cut.
func link(all []*segment) (chain, void []*segment, err error) {
	i := len(all) - 1
	for i >= 0 {
		s := all[i]
		chain = append(chain, s)
		cut := s.header.Cut
		if (cut == 0) != (s.header.Number == 1) {
			return nil, nil, &DamageError{File: s.name, Detail: fmt.Sprintf("it begins behind %v", cut)}
		}
		i--
		for i >= 0 && all[i].header.Number > cut.Segment() {
			void = append(void, all[i])
			i--
		}
		if i < 0 {
			break
		}
		p := all[i]
		switch {
		case p.header.Number != cut.Segment():
			return nil, nil, &DamageError{File: segmentName(cut.Segment()), Detail: fmt.Sprintf("it is missing: %s and %s are there", p.name, s.name)}
		case p.header.Life > s.header.Life || p.header.Epoch > s.header.Epoch:
			return nil, nil, &DamageError{File: s.name, Detail: fmt.Sprintf("it is of life %d, and %s before it of life %d", s.header.Life, p.name, p.header.Life)}
		case cut.Offset() < int64(p.header.Block) || cut.Offset() > p.size:
			return nil, nil, &DamageError{File: p.name, Detail: fmt.Sprintf("%d bytes, but %s says that the log went on to offset %d", p.size, s.name, cut.Offset())}
		}
	}
	slices.Reverse(chain)
	return chain, void, nil
}

// sure is up to where the log was durable, by what the caller and LIFE know.
func (o *opening) sure() Position { return max(o.c.Reach, o.c.From, o.book.now.End) }

// compare compares the chain with what the caller knows, as far as the headers tell.
func (o *opening) compare() error {
	now := o.book.now
	o.found = Found{Life: now.Life, Epoch: now.Epoch, Clean: now.Clean, Segments: len(o.chain)}
	reach := o.sure()
	if len(o.chain) == 0 {
		if reach != 0 {
			return &DamageError{Detail: fmt.Sprintf("it has no segment, but was durable to %v", reach)}
		}
		return nil
	}
	first, last := o.chain[0].header, o.chain[len(o.chain)-1].header
	o.found.First = format.At(first.Number, int64(first.Block))
	o.found.Epoch = max(o.found.Epoch, last.Epoch)
	if o.c.From < first.Cut {
		return &DamageError{File: segmentName(first.Cut.Segment()), Detail: fmt.Sprintf("it is missing: the checkpoint stands at %v, and the log begins behind %v", o.c.From, first.Cut)}
	}
	if reach.Segment() > last.Number {
		return &DamageError{File: segmentName(reach.Segment()), Detail: fmt.Sprintf("it is missing: the log was durable to %v", reach)}
	}
	return nil
}
