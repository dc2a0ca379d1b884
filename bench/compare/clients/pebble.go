package clients

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/load"
)

// A Pebble is the database that rdmakv writes to, without rdmakv: the floor of a
// put. The callers of the load generator share it, in one process and without a
// network, and so put the same keys and values as those of the stores do.
type Pebble struct {
	db   *pebble.DB
	opts *pebble.WriteOptions
}

var _ load.BatchStore = (*Pebble)(nil)

// OpenPebble opens the database in a directory, or makes it. With sync, a put
// returns when it is durable. Close it when all callers have ended.
func OpenPebble(dir string, sync bool) (*Pebble, error) {
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
	if err != nil {
		return nil, err
	}
	p := &Pebble{db, pebble.NoSync}
	if sync {
		p.opts = pebble.Sync
	}
	return p, nil
}

// End closes the database.
func (p *Pebble) End() error { return p.db.Close() }

// Put is Set.
func (p *Pebble) Put(_ context.Context, key, value []byte) error { return p.db.Set(key, value, p.opts) }

// Get is Get, and copies the value.
func (p *Pebble) Get(_ context.Context, key, dst []byte) ([]byte, load.Path, error) {
	value, closer, err := p.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		err = load.ErrNotFound
	}
	if err != nil {
		return nil, load.PathNone, err
	}
	return append(dst[:0], value...), load.PathNone, closer.Close()
}

// PutMany is one batch.
func (p *Pebble) PutMany(_ context.Context, keys, values [][]byte, errs []error) {
	b := p.db.NewBatch()
	var err error
	for i, key := range keys {
		err = errors.Join(err, b.Set(key, values[i], nil))
	}
	err = errors.Join(err, b.Commit(p.opts), b.Close())
	for i := range errs {
		errs[i] = err
	}
}

// GetMany is as many Gets.
func (p *Pebble) GetMany(ctx context.Context, keys, values [][]byte, errs []error) {
	for i, key := range keys {
		var value []byte
		if value, _, errs[i] = p.Get(ctx, key, values[i]); value != nil {
			values[i] = value
		}
	}
}

// Delete and Scan are not measured here.
func (p *Pebble) Delete(context.Context, []byte) error { return load.ErrUnsupported }

// Scan is not measured here.
func (p *Pebble) Scan(context.Context, []byte, int) (int, error) { return 0, load.ErrUnsupported }

// Close leaves the database to the other callers.
func (p *Pebble) Close() error { return nil }

// silent keeps Pebble's log out of the output, but not its end.
type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
