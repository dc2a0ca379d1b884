package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/parts"
	"github.com/rdmakv/rdmakv/client/internal/write"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// PutOptions say when a put takes effect, and for how long. The zero value is a
// plain put. At most one condition can be set.
type PutOptions struct {
	// IfAbsent stores the value only if the key does not exist.
	IfAbsent bool
	// IfVersion, if not 0, stores it only if the key exists with that version:
	// that of a GetItem, Stat, Scan or an earlier put.
	IfVersion uint64
	// TTL, if not 0, is how long the key lives from when the server orders the
	// put, by the server's time, in microseconds rounded up. A put without one
	// makes the key last, also where it had an expiry before.
	TTL time.Duration
}

// Put stores value under key. When it returns nil the value is durable, as far
// as the server's sync policy goes, and every get that begins afterwards sees
// it or something newer.
//
// A put whose reply was lost, or that the server had no room for, is sent again
// until the call's time is over, over reconnects and restarts of the server, and
// takes effect once. It fails with ErrKeyEmpty, ErrKeyTooLarge, ErrTooLarge,
// ErrOverloaded, ErrNoSpace, ErrTimeout, ErrUnavailable, ErrClosed: then nothing
// was changed; or with ErrOutcomeUnknown: then it may have been, or may still be.
//
// A value of more than 64 MiB (Config.PartsAbove), up to 1 GiB, goes in parts, and takes effect with
// the last write, that of its head. Without a deadline in ctx, Config.Timeout is for
// each part. PutReader needs no memory for all of it.
func (c *Client) Put(ctx context.Context, key, value []byte) error {
	_, err := c.putWith(ctx, key, value, PutOptions{})
	return err
}

// PutWith is Put under a condition or for a limited time. It returns the version
// that the key then has. Whether a condition holds is judged once, in the order
// of all writes: of two clients that put if absent at the same time, one stores.
//
// Beyond what Put fails with there are ErrExists (IfAbsent) and
// ErrVersionMismatch (IfVersion), both a *VersionError with the version that the
// key has: then nothing was changed. A put with IfVersion that fails with
// ErrOutcomeUnknown can be made again by the caller: it cannot take effect
// twice, because no version comes back.
func (c *Client) PutWith(ctx context.Context, key, value []byte, opts PutOptions) (version uint64, err error) {
	return c.putWith(ctx, key, value, opts)
}

func (c *Client) putWith(ctx context.Context, key, value []byte, opts PutOptions) (version uint64, err error) {
	if int64(len(value)) > c.rt().Config().PartsAbove {
		terms, err := termsOf(opts)
		if err != nil {
			return 0, c.fail("put", key, err)
		}
		return parts.Put(ctx, c.rt(), "put", key, value, terms)
	}
	w, err := putOf(key, value, opts)
	if err != nil {
		return 0, c.fail("put", key, err)
	}
	err = c.writeKey(ctx, "put", &w)
	return w.Reply.Version, err
}

// A Pending is a put of PutAsync that may not have ended yet. Done returns a channel that is
// closed when it has ended. Wait waits for that, and returns the version that the key then had,
// or why the put has failed: an *Error, as Put returns it. Both may be called by many goroutines
// and at any time; a program that does not want to know need not call either.
type Pending = write.Pending

// PutAsync is Put that does not wait for the server. It returns when the put has been taken into
// the client's window (Config.AsyncWindow, AsyncBytes), for which it waits. key and value are
// copied: they are the caller's again when it returns.
//
// Puts of one key take effect in the order in which calls of PutAsync took them, because the next
// one is sent only when the one before has ended; those of different keys in any order, as those of
// several goroutines do. A put applies once, over reconnects and restarts, as Put says. One
// that ends with ErrOutcomeUnknown does not keep later ones of its key back, and may take
// effect after them, as with Put.
//
// ctx is the whole put's, not only this call's: when it ends, the put fails as Put would. Without
// a deadline the put ends after Config.Timeout, which counts from when it was taken. Outcomes
// are learned in the order in which the puts were sent to a node, so one whose time is over may
// be told only when those before it have ended.
//
// PutAsync itself fails with ErrKeyEmpty, ErrKeyTooLarge, ErrTooLarge, with ErrTimeout or ctx's
// error if there was no room in time, and with ErrOverloaded if more than Config.MaxWaiting
// calls wait for room; then nothing was changed, and there is no Pending. Everything else
// is told by Pending.Wait. There is no callback, so no code of the program can hold up the client.
func (c *Client) PutAsync(ctx context.Context, key, value []byte) (*Pending, error) {
	return write.Async(c.rt()).Put(ctx, key, value)
}

// Flush waits until each put has ended that PutAsync has taken before, by any goroutine. It fails
// with ErrTimeout or ctx's error, if that ends first, and with nothing else: how a put has
// ended is told by its Pending. After Flush without an error, what succeeded is as durable and
// visible as after Put.
func (c *Client) Flush(ctx context.Context) error {
	return write.Async(c.rt()).Flush(ctx)
}

// maxTTL is what servers take.
const maxTTL = 100 * 366 * 24 * time.Hour

// ttlMicros is a time to live as it is sent: never 0 unless it is none.
func ttlMicros(ttl time.Duration) (uint64, error) {
	if ttl < 0 || ttl > maxTTL {
		return 0, fmt.Errorf("%w: a TTL of %v, must be 0 (none) to 100 years", ErrOptions, ttl)
	}
	return uint64((ttl + time.Microsecond - 1) / time.Microsecond), nil
}

// Delete removes key and reports whether it existed. It fails as Put does, and
// is sent again as a put is: existed is what the first copy found.
func (c *Client) Delete(ctx context.Context, key []byte) (existed bool, err error) {
	w, err := write.NewDelete(key, 0)
	if err != nil {
		return false, c.fail("delete", key, err)
	}
	err = c.writeKey(ctx, "delete", &w)
	return w.Reply.Existed, err
}

// DeleteIf removes key if it has the given version, which must not be 0. It
// fails as Put does, with ErrVersionMismatch if the key has another version
// (*VersionError tells which), and with ErrNotFound if it does not exist.
func (c *Client) DeleteIf(ctx context.Context, key []byte, version uint64) error {
	w, err := write.NewDelete(key, version)
	if err == nil {
		err = checkVersion(version)
	}
	if err != nil {
		return c.fail("delete-if", key, err)
	}
	err = c.writeKey(ctx, "delete-if", &w)
	if v := (*VersionError)(nil); errors.As(err, &v) && v.Actual == 0 {
		return &Error{Op: "delete-if", Server: err.(*Error).Server, Key: base.QuoteKey(key), Err: ErrNotFound}
	}
	return err
}

// Increment adds delta to the number under key and returns the sum. A number is
// a decimal int64 in ASCII, as strconv writes it; a key that does not exist
// counts as 0. An expiry stays as it is. It is done by the server in one step:
// increments by many clients all count, and one whose reply was lost counts
// once.
//
// It fails as Put does, with ErrNotNumber if the value is no number, and with
// ErrNumberRange if the sum does not fit; then nothing was changed.
func (c *Client) Increment(ctx context.Context, key []byte, delta int64) (int64, error) {
	w, err := write.NewIncrement(key, delta)
	if err != nil {
		return 0, c.fail("increment", key, err)
	}
	err = c.writeKey(ctx, "increment", &w)
	return w.Reply.Number, err
}

// Touch gives key another time to live, from when the server orders it; 0 makes
// it last. The value stays, the version rises. It fails as Put does, and with
// ErrNotFound if there is no such key.
func (c *Client) Touch(ctx context.Context, key []byte, ttl time.Duration) error {
	micros, bad := ttlMicros(ttl)
	w, err := write.NewTouch(key, micros)
	if err == nil {
		err = bad
	}
	if err != nil {
		return c.fail("touch", key, err)
	}
	return c.writeKey(ctx, "touch", &w)
}

// putOf checks a put and its options.
func putOf(key, value []byte, opts PutOptions) (write.Write, error) {
	terms, bad := termsOf(opts)
	w, err := write.NewPut(key, value, terms)
	if err == nil {
		err = bad
	}
	return w, err
}

// termsOf checks the options of a put.
func termsOf(opts PutOptions) (t wire.Terms, err error) {
	t.TTLMicros, err = ttlMicros(opts.TTL)
	switch {
	case err != nil:
	case opts.IfAbsent && opts.IfVersion != 0:
		err = fmt.Errorf("%w: IfAbsent and IfVersion exclude each other", ErrOptions)
	case opts.IfAbsent:
		t.If = wire.CondAbsent
	case opts.IfVersion != 0:
		t.If, t.IfVersion, err = wire.CondVersion, opts.IfVersion, checkVersion(opts.IfVersion)
	}
	return t, err
}

// checkVersion refuses versions that no key has.
func checkVersion(version uint64) error {
	if version == 0 || version > uint64(layout.MaxVersion) {
		return fmt.Errorf("%w: version %d is none that a key can have", ErrOptions, version)
	}
	return nil
}
