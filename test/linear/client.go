package linear

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// NewClient makes a Store of a client.
func NewClient(c *client.Client) Store { return &clientStore{c} }

// ClientCan is what a client can do.
var ClientCan = Abilities{Versions: true, Increment: true, TTL: true, Batch: true, Scan: true}

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
		return Output{Unknown: true, Why: err.Error()}, nil
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

// refused turns the refusal of a condition into an answer, and leaves other
// errors alone.
func refused(out Output, err error) (Output, error) {
	var v *client.VersionError
	switch {
	case errors.As(err, &v):
		return Output{Refused: true, Version: v.Actual, Absent: v.Actual == 0, Part: v.Part}, nil
	case errors.Is(err, client.ErrNotNumber):
		return Output{NotNumber: true}, nil
	}
	return judge(out, err)
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
		version, err := s.c.PutWith(ctx, key, in.Val.Bytes(size), putOptions(in.If, in.IfVersion, in.TTL))
		return refused(Output{Version: version}, err)
	case OpDelete:
		if in.If == CondVersion {
			err := s.c.DeleteIf(ctx, key, in.IfVersion)
			if errors.Is(err, client.ErrNotFound) {
				return Output{Refused: true, Absent: true}, nil
			}
			return refused(Output{Present: true}, err)
		}
		existed, err := s.c.Delete(ctx, key)
		return judge(Output{Present: existed}, err)
	case OpIncrement:
		n, err := s.c.Increment(ctx, key, in.Delta)
		return refused(Output{Val: Value{Num: true, N: n}}, err)
	case OpTouch:
		return judge(Output{Present: true}, s.c.Touch(ctx, key, in.TTL))
	}
	return Output{}, fmt.Errorf("the client has no %v", in.Op)
}

func putOptions(c Cond, version uint64, ttl time.Duration) client.PutOptions {
	o := client.PutOptions{IfAbsent: c == CondAbsent, TTL: ttl}
	if c == CondVersion {
		o.IfVersion = version
	}
	return o
}

func (s *clientStore) get(ctx context.Context, key []byte, how string) (Output, error) {
	if how == "range" {
		// As many bytes as a number has at most, and a record at least.
		part, err := s.c.GetRange(ctx, key, 0, 20)
		return found(part, err, false)
	}
	if how == "item" {
		item, err := s.c.GetItem(ctx, key)
		out, err := found(item.Value, err, true)
		out.Version = item.Version
		return out, err
	}
	value, err := s.c.Get(ctx, key)
	return found(value, err, true)
}

// Batch implements Store.
func (s *clientStore) Batch(ctx context.Context, keys [][]byte, in *Input, size int) (Output, error) {
	var b client.Batch
	for _, p := range in.Parts {
		switch {
		case p.Delete && p.If == CondVersion:
			b.DeleteIf(keys[p.Key], p.IfVersion)
		case p.Delete:
			b.Delete(keys[p.Key])
		default:
			b.PutWith(keys[p.Key], p.Val.Bytes(size), putOptions(p.If, p.IfVersion, 0))
		}
	}
	version, err := s.c.WriteBatch(ctx, &b)
	return refused(Output{Version: version}, err)
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
