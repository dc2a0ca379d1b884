package linear

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/client"
)

// NewClient makes a Store of a client.
func NewClient(c *client.Client) Store { return &clientStore{c} }

// ClientCan is what a client can do.
var ClientCan = Abilities{Scan: true}

type clientStore struct{ c *client.Client }

// nothing: errors that say that nothing was changed, and nothing was read.
var nothing = []error{
	client.ErrTimeout, client.ErrUnavailable, client.ErrOverloaded, client.ErrClosed,
	context.Canceled, context.DeadlineExceeded,
}

// judge turns the error of a call into an answer or into what Store asks for.
func judge(out Output, err error) (Output, error) {
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, client.ErrOutcomeUnknown):
		return Output{Unknown: true}, nil
	case errors.Is(err, client.ErrNotFound):
		return Output{}, nil
	case slices.ContainsFunc(nothing, func(e error) bool { return errors.Is(err, e) }):
		return Output{}, fmt.Errorf("%w: %w", ErrNothing, err)
	}
	return Output{}, err
}

// found is the answer of a get; whole tells whether it is all of the value.
func found(value []byte, err error, whole bool) (Output, error) {
	if err != nil {
		return judge(Output{}, err)
	}
	parse := ParseFirst
	if whole {
		parse = Parse
	}
	v, err := parse(value)
	return Output{Present: true, Val: v}, err
}

// Do implements Store.
func (s *clientStore) Do(ctx context.Context, key []byte, in *Input, size int) (Output, error) {
	switch in.Op {
	case OpGet:
		return s.get(ctx, key, in.How)
	case OpPeek:
		info, err := s.c.Stat(ctx, key)
		return judge(Output{Present: true, Version: info.Version}, err)
	case OpPut:
		return judge(Output{}, s.c.Put(ctx, key, in.Val.Bytes(size)))
	case OpDelete:
		existed, err := s.c.Delete(ctx, key)
		return judge(Output{Present: existed}, err)
	}
	return Output{}, fmt.Errorf("the client has no %v", in.Op)
}

func (s *clientStore) get(ctx context.Context, key []byte, how string) (Output, error) {
	if how == "range" {
		// As many bytes as a number has at most, and a record at least.
		part, err := s.c.GetRange(ctx, key, 0, 20)
		return found(part, err, false)
	}
	value, err := s.c.Get(ctx, key)
	return found(value, err, true)
}

// Batch implements Store.
func (s *clientStore) Batch(ctx context.Context, keys [][]byte, in *Input, size int) (Output, error) {
	return Output{}, errors.New("the client has no batches")
}

// MultiGet implements Store.
func (s *clientStore) MultiGet(ctx context.Context, keys [][]byte) ([]*Output, error) {
	results, err := s.c.MultiGet(ctx, keys)
	if err != nil {
		_, err = judge(Output{}, err)
		return nil, err
	}
	outs := make([]*Output, len(keys))
	for i, r := range results {
		out, err := found(r.Value, r.Err, true)
		switch {
		case err == nil:
			outs[i] = &out
		case !errors.Is(err, ErrNothing):
			return nil, err
		}
	}
	return outs, nil
}

// Scan implements Store.
func (s *clientStore) Scan(ctx context.Context, prefix []byte, values bool) (all []Found, err error) {
	for e, err := range s.c.Scan(ctx, client.ScanOptions{Prefix: prefix, KeysOnly: !values}) {
		if err != nil {
			_, err = judge(Output{}, err)
			return nil, err
		}
		f := Found{Key: e.Key, Version: e.Version}
		if values {
			if f.Val, err = Parse(e.Value); err != nil {
				return nil, err
			}
		}
		all = append(all, f)
	}
	return all, nil
}
