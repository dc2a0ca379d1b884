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

// A tail is what an opening knows of the log that it found.
type tail struct {
	found  Found
	chain  []*segment // in force, by number
	void   []*segment // behind the cut of a later life, or of this one
	direct bool       // reads go past the page cache
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
	l := &Log{c: c, stop: make(chan struct{}), changed: make(chan struct{}, 1), retire: make(chan struct{}, 1), holds: make(map[*hold]struct{}), table: streams.New(streams.Limits{})}
	l.cond.L = &l.mu
	if err := l.open(); err != nil {
		err = errors.Join(err, l.segs.close())
		if l.book != nil {
			err = errors.Join(err, l.book.f.Close())
		}
		return nil, err
	}
	return l, nil
}

// open is Open after the configuration.
func (l *Log) open() error {
	names, err := l.c.Dir.List()
	if err != nil {
		return fmt.Errorf("log: list: %w", err)
	}
	if err := l.openBook(names); err != nil {
		return err
	}
	if err := l.tidy(names); err != nil {
		return err
	}
	if err := l.probe(); err != nil {
		return err
	}
	if err := l.load(names); err != nil {
		return err
	}
	if !l.tail.direct && !l.c.ReadOnly {
		return l.settle()
	}
	return nil
}

// openBook opens LIFE, or makes it for a new log.
func (l *Log) openBook(names []string) (err error) {
	l.book, err = openLife(l.c.Dir, l.c.Store, !l.c.ReadOnly)
	if !errors.Is(err, ErrNoLog) {
		return err
	}
	for _, name := range names {
		if _, ok := segmentNumber(name); ok {
			return &DamageError{File: lifeFile, Detail: "it is missing, and there are segments"}
		}
	}
	if !l.c.Create || l.c.ReadOnly || l.c.Reach != 0 || l.c.From != 0 {
		return ErrNoLog
	}
	l.book, err = createLife(l.c.Dir, l.c.Store, l.made())
	return err
}

// tidy removes what an opening or a making that was cut short has left, and collects the
// free files.
func (l *Log) tidy(names []string) error {
	for _, name := range names {
		serial, free := freeSerial(name)
		switch _, seg := segmentNumber(name); {
		case seg || name == lifeFile:
		case free:
			l.segs.serial = max(l.segs.serial, serial)
			size, err := l.sizeOf(name)
			if err != nil {
				return err
			}
			if size == l.c.SegmentSize {
				l.segs.free = append(l.segs.free, name)
				continue
			}
			fallthrough // of another configuration
		case strings.HasSuffix(name, newSuffix):
			if l.c.ReadOnly {
				continue
			}
			if err := l.c.Dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("log: remove %s: %w", name, err)
			}
		default:
			l.c.Logger.Warn("a file in the log's directory is not the log's", "file", name)
		}
	}
	return nil
}

// sizeOf returns the size of a file.
func (l *Log) sizeOf(name string) (int64, error) {
	f, err := l.c.Dir.Open(name, Access{})
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
func (l *Log) probe() error {
	l.block = format.MinBlock
	f, err := l.c.Dir.Open(lifeFile, Access{Direct: true})
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
	l.block = max(l.block, block)
	l.tail.direct = true
	l.direct = l.c.Sync == Always
	return nil
}

// load reads the headers of all segments, builds the chain, and compares it with what LIFE
// and the caller know.
func (l *Log) load(names []string) error {
	t := &l.tail
	var all []*segment
	for _, name := range names {
		number, ok := segmentNumber(name)
		if !ok {
			continue
		}
		seg, err := l.openSegment(name, number)
		if err != nil {
			return err
		}
		l.segs.force = append(l.segs.force, seg) // so that its files are closed
		all = append(all, seg)
	}
	if !l.c.ReadOnly {
		// What stands in the page cache alone must not be told: it could be gone after a
		// power cut.
		if err := l.c.Dir.Sync(); err != nil {
			return fmt.Errorf("log: sync the directory: %w", err)
		}
	}
	slices.SortFunc(all, func(a, b *segment) int { return cmp.Compare(a.header.Number, b.header.Number) })
	chain, void, err := link(all)
	if err != nil {
		return err
	}
	t.chain, t.void, t.newest, t.life = chain, void, 0, 0
	if n := len(chain); n > 0 {
		t.newest, t.life = chain[n-1].header.Number, chain[n-1].header.Life
	}
	l.segs.force = chain
	if err := l.book.check(t.life); err != nil {
		return errors.Join(err, closeAll(void))
	}
	return errors.Join(l.compare(), closeAll(void))
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
func (l *Log) openSegment(name string, number uint64) (_ *segment, err error) {
	seg := &segment{name: name, left: true, synced: true}
	if !l.c.ReadOnly {
		f, err := l.c.Dir.Open(name, Access{Write: true})
		if err != nil {
			return nil, fmt.Errorf("log: open %s: %w", name, err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return nil, fmt.Errorf("log: sync %s: %w", name, err)
		}
	}
	seg.reader, err = l.c.Dir.Open(name, Access{Direct: l.tail.direct})
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
	case seg.header.Store != l.c.Store:
		return nil, fmt.Errorf("%w: %s is of store %x, expected %x", ErrForeign, name, seg.header.Store, l.c.Store)
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
func link(all []*segment) (chain, void []*segment, err error) {
	i := len(all) - 1
	for i >= 0 {
		s := all[i]
		chain = append(chain, s)
		cut := s.header.Cut
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

// compare compares the chain with what the caller knows, as far as the headers tell.
func (l *Log) compare() error {
	t := &l.tail
	now := l.book.now
	t.found = Found{Life: now.Life, Epoch: now.Epoch, Clean: now.Clean, Segments: len(t.chain)}
	reach := max(l.c.Reach, l.c.From)
	if len(t.chain) == 0 {
		if reach != 0 {
			return &DamageError{Detail: fmt.Sprintf("it has no segment, but was durable to %v", reach)}
		}
		return nil
	}
	first, last := t.chain[0].header, t.chain[len(t.chain)-1].header
	t.found.First = format.At(first.Number, int64(first.Block))
	t.found.Epoch = max(t.found.Epoch, last.Epoch)
	if l.c.From < first.Cut {
		return &DamageError{File: segmentName(first.Cut.Segment()), Detail: fmt.Sprintf("it is missing: the checkpoint stands at %v, and the log begins behind %v", l.c.From, first.Cut)}
	}
	if reach.Segment() > last.Number {
		return &DamageError{File: segmentName(reach.Segment()), Detail: fmt.Sprintf("it is missing: the log was durable to %v", reach)}
	}
	return nil
}
