package log

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// The file LIFE is what makes the number of a life unique: a start writes the next one
// down before it writes or tells anything else. Both copies say the same; they are written
// and synced one after the other, so one of them is whole at every moment, and a copy that
// goes bad later takes nothing with it. The file never changes its length, and its name
// never changes, so a sync of the file is all that a new copy needs.

// lifeFile is the name of the file.
const lifeFile = "LIFE"

// A lifeBook is the file LIFE, open. It is used by one goroutine at a time.
type lifeBook struct {
	f     File
	store [16]byte
	now   format.Life // the newest copy
}

// openLife reads the file. It returns ErrNoLog if there is none, and none of the two
// copies was ever whole; that is a log whose making was cut short.
func openLife(dir Dir, store [16]byte, write bool) (*lifeBook, error) {
	f, err := dir.Open(lifeFile, Access{Write: write})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoLog
	}
	if err != nil {
		return nil, fmt.Errorf("log: open %s: %w", lifeFile, err)
	}
	if write {
		// What an earlier process wrote may stand in the page cache alone.
		if err := f.Sync(); err != nil {
			return nil, errors.Join(fmt.Errorf("log: sync %s: %w", lifeFile, err), f.Close())
		}
	}
	b := &lifeBook{f: f, store: store}
	if err := b.read(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return b, nil
}

// read reads both copies, and takes the newer one: if a write was cut short between them,
// they differ.
func (b *lifeBook) read() error {
	var bad error
	for i := range 2 {
		block := make([]byte, format.MinBlock)
		if _, err := b.f.ReadAt(block, int64(i)*format.MaxBlock); err != nil {
			bad = err // the other copy may be whole
			continue
		}
		l, err := format.ParseLife(block)
		var newer *format.NewerError
		switch {
		case errors.As(err, &newer):
			return fmt.Errorf("log: %s: %w", lifeFile, err)
		case err != nil:
			bad = err
		case l.Serial > b.now.Serial:
			b.now = l
		}
	}
	switch {
	case b.now.Serial == 0:
		return &DamageError{File: lifeFile, Detail: "none of its two copies is whole", Err: bad}
	case b.now.Store != b.store:
		return fmt.Errorf("%w: %x, expected %x", ErrForeign, b.now.Store, b.store)
	}
	return nil
}

// createLife makes the file, with a first copy that no life stands in. It is there under
// its name only when it is whole: otherwise a making that was cut short would look like
// a log whose file is damaged.
func createLife(dir Dir, store [16]byte, made uint64) (*lifeBook, error) {
	const name = lifeFile + ".new"
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("log: remove %s: %w", name, err)
	}
	f, err := dir.Create(name, format.LifeSize, true, Access{Write: true})
	if err != nil {
		return nil, fmt.Errorf("log: create %s: %w", name, err)
	}
	b := &lifeBook{f: f, store: store}
	err = b.write(format.Life{Made: made})
	if err == nil {
		err = dir.Rename(name, lifeFile)
	}
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("log: create %s: %w", lifeFile, err), f.Close())
	}
	return b, nil
}

// write makes both copies say l, durably.
func (b *lifeBook) write(l format.Life) (err error) {
	if l, err = b.put(l); err == nil {
		b.now = l
	}
	return err
}

// put is write without what the log knows of it, and returns that. After an error the file
// must not be used any more: what counts then is not known.
func (b *lifeBook) put(l format.Life) (format.Life, error) {
	l.Store, l.Serial = b.store, b.now.Serial+1
	block := make([]byte, format.MinBlock)
	format.PutLife(block, l)
	for i := range 2 {
		if _, err := b.f.WriteAt(block, int64(i)*format.MaxBlock); err != nil {
			return l, fmt.Errorf("log: write %s: %w", lifeFile, err)
		}
		if err := b.f.Sync(); err != nil {
			return l, fmt.Errorf("log: sync %s: %w", lifeFile, err)
		}
	}
	return l, nil
}

// check compares LIFE with the newest life that a segment is of; 0: there is no segment.
func (b *lifeBook) check(newest uint64) error {
	switch {
	case newest > b.now.Life:
		return &DamageError{File: lifeFile, Detail: fmt.Sprintf("it says life %d, but a segment is of life %d: it is older than the log", b.now.Life, newest)}
	case newest < b.now.Seen:
		return &DamageError{File: lifeFile, Detail: fmt.Sprintf("it saw segments of life %d, and the newest is of life %d: segments are lost", b.now.Seen, newest)}
	}
	return nil
}
