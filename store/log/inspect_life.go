package log

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// life reads LIFE as a start does: of its two copies the newer one counts, and one of them
// may be bad, because a write can have been cut short. A log that is older than its first
// life has a file that names no life; that is no problem.
func (w *walker) life() (InspectedLife, error) {
	f, err := w.dir.Open(lifeFile, Access{})
	if err != nil {
		return InspectedLife{}, &DamageError{File: lifeFile, Err: err}
	}
	defer f.Close()
	var now format.Life
	var bad error
	for i := range int64(2) {
		b := make([]byte, format.MinBlock)
		if _, err := f.ReadAt(b, i*format.MaxBlock); err != nil {
			bad = err
			continue
		}
		l, err := format.ParseLife(b)
		if err != nil {
			bad = err
		} else if l.Serial > now.Serial {
			now = l
		}
	}
	switch {
	case errors.Is(bad, format.ErrNewer):
		return InspectedLife{}, fmt.Errorf("log: %s: %w", lifeFile, bad)
	case now.Serial == 0:
		return InspectedLife{}, &DamageError{File: lifeFile, Detail: "none of its two copies is whole", Err: bad}
	}
	return InspectedLife{Life: now.Life, Epoch: now.Epoch, Seen: now.Seen, Clean: now.Clean, End: now.End, Store: now.Store}, nil
}

// compare compares LIFE with what the segments say. A life may have no segment yet: its
// start was cut short.
func (w *walker) compare(in Inspection) (problems []error) {
	var newest *walked
	for _, s := range w.segs {
		if s.told.Err == nil && s.told.Ending != Void {
			newest = s
		}
		if s.told.Err == nil && s.head.Store != in.Life.Store {
			problems = append(problems, &DamageError{File: s.told.File, Detail: "it is of another store than " + lifeFile, Err: ErrForeign})
		}
	}
	life := uint64(0)
	if newest != nil {
		life = newest.head.Life
	}
	switch now := in.Life; {
	case life > now.Life:
		problems = append(problems, &DamageError{File: lifeFile, Detail: fmt.Sprintf("it says life %d, but a segment is of life %d: it is older than the log", now.Life, life)})
	case life < now.Seen:
		problems = append(problems, &DamageError{File: lifeFile, Detail: fmt.Sprintf("it saw segments of life %d, and the newest is of life %d: segments are lost", now.Seen, life)})
	case now.Clean && now.End != in.End:
		problems = append(problems, &DamageError{Detail: fmt.Sprintf("it ends at %v, but ended at %v when it was stopped", in.End, now.End)})
	}
	return problems
}
