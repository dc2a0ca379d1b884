package client

import (
	"context"
	"errors"
)

// Calls for one key: the peer of its shard's node, and another one when told so.

func (f *fleet) get(ctx context.Context, op string, key []byte, w *want) error {
	if err := checkKey(key); err != nil {
		return f.fail(op, key, err)
	}
	var way rerouting
	defer way.end()
	base := len(w.dst)
	for {
		p, err := f.owner(key)
		if err == nil {
			err = p.get(ctx, op, key, w)
		}
		if err == nil || errors.Is(err, ErrNotFound) {
			return err
		}
		next := f.again(ctx, &way, err)
		if next == nil {
			return f.fail(op, key, way.because(err))
		}
		// Nothing of what a former node said is used.
		ctx, w.dst = next, w.dst[:base]
	}
}

// writeKey carries out a write; key is any of its keys. Each node that it is
// taken to knows it by a name of its own: what may have taken effect under
// another one is never sent again.
func (f *fleet) writeKey(ctx context.Context, op string, key []byte, w *write) error {
	var way rerouting
	defer way.end()
	for {
		p, err := f.owner(key)
		if err == nil {
			err = p.writeKey(ctx, op, w)
		}
		if err == nil {
			return nil
		}
		next := f.again(ctx, &way, err)
		if next == nil {
			return f.fail(op, w.key, way.because(err))
		}
		ctx = next
		w.first, w.sent = 0, false
	}
}

// fail makes the *Error of a call that came to no node.
func (f *fleet) fail(op string, key []byte, err error) error {
	if e := (*Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	if !errors.Is(err, ErrOutcomeUnknown) {
		err = asTimeout(err)
	}
	return &Error{Op: op, Key: quoteKey(key), Err: err}
}
