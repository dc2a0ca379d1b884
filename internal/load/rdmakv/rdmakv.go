// Package rdmakv lets package load measure a rdmakv store through package client.
package rdmakv

import (
	"context"
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/load"
)

// Open returns a function for load.Options.Open: caller number w has client w,
// modulo their number. The clients belong to the program, which closes them.
func Open(clients ...*client.Client) func(context.Context, int) (load.Store, error) {
	return func(_ context.Context, worker int) (load.Store, error) {
		return &caller{c: clients[worker%len(clients)]}, nil
	}
}

// OpenBounded is Open for callers whose gets may be as old as bound (client.ReadBounded).
func OpenBounded(bound time.Duration, clients ...*client.Client) func(context.Context, int) (load.Store, error) {
	return func(_ context.Context, worker int) (load.Store, error) {
		return &caller{c: clients[worker%len(clients)], bound: bound}, nil
	}
}

// OpenRegistered is Open for callers each of which has a registered client.Buffer of size
// bytes: values are put from it and got into it.
func OpenRegistered(size int, clients ...*client.Client) func(context.Context, int) (load.Store, error) {
	return func(_ context.Context, worker int) (load.Store, error) {
		c := clients[worker%len(clients)]
		buf, err := c.NewBuffer(size)
		if err != nil {
			return nil, err
		}
		return &caller{c: c, buf: buf}, nil
	}
}

// A caller is the store as one caller has it.
type caller struct {
	c     *client.Client
	buf   *client.Buffer // or nil
	bound time.Duration  // of gets; 0: none
	pairs []client.Pair
	// results of the last GetMany, whose memory the next one uses
	results []client.Result
}

var _ load.RoomyStore = (*caller)(nil)

func (s *caller) Room() []byte {
	if s.buf == nil {
		return nil
	}
	return s.buf.Bytes()
}

// paths are those of the client under the names of the load.
var paths = [...]load.Path{
	admin.PathUnknown:   load.PathNone,
	admin.PathOneRead:   load.PathRead1,
	admin.PathTwoReads:  load.PathRead2,
	admin.PathMoreReads: load.PathReadMore,
	admin.PathLarge:     load.PathLarge,
	admin.PathSend:      load.PathSend,
}

func pathOf(p admin.Path) load.Path {
	if int(p) < len(paths) {
		return paths[p]
	}
	return load.PathNone
}

func (s *caller) Get(ctx context.Context, key, dst []byte) ([]byte, load.Path, error) {
	if s.buf != nil {
		value, err := s.buf.Get(ctx, key)
		return value, load.PathNone, missing(err)
	}
	value, path, err := admin.Of(s.c).GetPath(ctx, key, dst, s.bound)
	if err != nil {
		return nil, pathOf(path), missing(err)
	}
	return value, pathOf(path), nil
}

func (s *caller) Put(ctx context.Context, key, value []byte) error {
	if room := s.Room(); len(value) > 0 && len(value) <= len(room) && &value[0] == &room[0] {
		_, err := s.buf.Put(ctx, key, len(value), client.PutOptions{})
		return err
	}
	return s.c.Put(ctx, key, value)
}

func (s *caller) Delete(ctx context.Context, key []byte) error {
	_, err := s.c.Delete(ctx, key)
	return err
}

func (s *caller) Scan(ctx context.Context, start []byte, n int) (found int, err error) {
	for _, err := range s.c.Scan(ctx, client.ScanOptions{Start: start, Limit: n}) {
		if err != nil {
			return found, err
		}
		found++
	}
	return found, nil
}

func (s *caller) GetMany(ctx context.Context, keys, values [][]byte, errs []error) {
	bound := client.ReadOption{}
	if s.bound > 0 {
		bound = client.ReadBounded(s.bound)
	}
	s.results, _ = s.c.MultiGet(ctx, keys, client.ReadInto(s.results), bound) // each key has its own error
	for i, r := range s.results {
		values[i], errs[i] = r.Value, missing(r.Err)
	}
}

func (s *caller) PutMany(ctx context.Context, keys, values [][]byte, errs []error) {
	s.pairs = s.pairs[:0]
	for i := range keys {
		s.pairs = append(s.pairs, client.Pair{Key: keys[i], Value: values[i]})
	}
	err := s.c.MultiPut(ctx, s.pairs)
	if err == nil {
		return
	}
	if part := (*client.PartialError)(nil); errors.As(err, &part) {
		clear(errs)
		for _, f := range part.Failures {
			errs[f.Index] = f.Err
		}
		return
	}
	for i := range errs {
		errs[i] = err
	}
}

// Close leaves the client to its owner.
func (s *caller) Close() error {
	if s.buf != nil {
		s.buf.Free()
	}
	return nil
}

// missing is ErrNotFound in the load's words.
func missing(err error) error {
	if errors.Is(err, client.ErrNotFound) {
		return notFound{err}
	}
	return err
}

// notFound is an error of the client that is also load.ErrNotFound.
type notFound struct{ error }

func (e notFound) Unwrap() []error { return []error{load.ErrNotFound, e.error} }

// Classify names the kind of an error, for load.Options.Classify.
func Classify(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return "other"
}

// kinds are compared in order: the more specific ones come first.
var kinds = []struct {
	err  error
	name string
}{
	{load.ErrWrongValue, "wrong value"},
	{load.ErrNotFound, "not found"},
	{load.ErrUnsupported, "unsupported"},
	{client.ErrOutcomeUnknown, "outcome unknown"},
	{client.ErrBufferBusy, "buffer in use"},
	{client.ErrOverloaded, "overloaded"},
	{client.ErrNoSpace, "no space"},
	{client.ErrTooLarge, "too large"},
	{client.ErrDenied, "denied"},
	{client.ErrCorrupt, "corrupt"},
	{client.ErrUnavailable, "unavailable"},
	{client.ErrTimeout, "timeout"},
	{client.ErrClosed, "closed"},
	{client.ErrProtocol, "protocol"},
	{client.ErrServer, "server"},
	{context.Canceled, "cancelled"},
	{context.DeadlineExceeded, "timeout"},
}
