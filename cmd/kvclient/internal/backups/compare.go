package backups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/backup"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/store/layout"
)

// How a cluster is compared with a backup: each key of the backup is got, and has the same bytes; and the cluster has no other keys. A key that expires is not missed
// from a moment before its time on, because the clocks of the cluster decide that.

const (
	compareKeys  = 256     // are got at a time
	compareBytes = 4 << 20 // of values, likewise
	clocksDiffer = 5 * time.Second
)

// errDiffers: the cluster has not what the backup has.
var errDiffers = errors.New("the cluster differs from the backup")

// compare compares. found is how many keys the cluster has.
func (r *restoring) compare(ctx context.Context, total int64) (compared, found int64, err error) {
	r.show = app.NewProgress(r.a.Stderr, "compared", total, nil)
	defer func() { r.a.Finish(r.show, err) }()
	var right atomic.Int64
	err = each(ctx, len(r.m.Pieces), r.workers, func(ctx context.Context, i int) error {
		n, err := r.comparePiece(ctx, &r.m.Pieces[i])
		right.Add(n)
		r.show.Bytes.Add(r.m.Pieces[i].Bytes)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	for _, err := range r.c.Scan(ctx, client.ScanOptions{KeysOnly: true}) {
		if err != nil {
			return 0, 0, err
		}
		found++
	}
	if most := r.put.Load(); found > most || found < most-r.mortal.Load() {
		return 0, 0, fmt.Errorf("%w: it has %s keys, and %s were restored: somebody else has written to it, or deletes from it", errDiffers, cli.Thousands(found), cli.Thousands(most))
	}
	return right.Load(), found, nil
}

// comparePiece compares the keys of a piece.
func (r *restoring) comparePiece(ctx context.Context, e *backup.Entry) (right int64, err error) {
	var list []backup.Record
	size := 0
	flush := func() error {
		n, err := r.same(ctx, list)
		right += n
		r.show.Keys.Add(n)
		list, size = list[:0], 0
		return err
	}
	err = records(ctx, r.from, r.m, e, func(rec backup.Record) error {
		if layout.IsHead(rec.Value) {
			n, err := r.sameWhole(ctx, e.Shard, rec)
			right += n
			r.show.Keys.Add(n)
			return err
		}
		if list, size = append(list, rec), size+len(rec.Value); len(list) < compareKeys && size < compareBytes {
			return nil
		}
		return flush()
	})
	if err == nil && len(list) > 0 {
		err = flush()
	}
	return right, err
}

// same gets keys and compares their values.
func (r *restoring) same(ctx context.Context, list []backup.Record) (right int64, err error) {
	keys := make([][]byte, len(list))
	for i := range list {
		keys[i] = list[i].Key
	}
	var results []client.Result
	err = r.patiently(ctx, func() (err error) {
		results, err = r.c.MultiGet(ctx, keys)
		return err
	})
	if err != nil {
		return 0, err
	}
	for i := range results {
		switch err := results[i].Err; {
		case err == nil && bytes.Equal(results[i].Value, list[i].Value):
			right++
		case err == nil:
			return right, fmt.Errorf("%w: key %s has another value", errDiffers, cli.Quote(list[i].Key))
		case !errors.Is(err, client.ErrNotFound):
			return right, err
		case !isOver(&list[i], time.Now().Add(clocksDiffer)):
			return right, fmt.Errorf("%w: key %s is missing", errDiffers, cli.Quote(list[i].Key))
		}
	}
	return right, nil
}

// sameWhole is same of a value in parts.
func (r *restoring) sameWhole(ctx context.Context, shard uint16, rec backup.Record) (right int64, err error) {
	w, err := newWhole(ctx, r.from, r.m, shard, rec.Value)
	if err != nil {
		return 0, err
	}
	want := xxh3.New()
	if _, err := io.Copy(want, w); err != nil {
		return 0, err
	}
	var got hash.Hash64
	err = r.patiently(ctx, func() error {
		got = xxh3.New()
		_, err := r.c.GetWriter(ctx, rec.Key, got)
		return err
	})
	switch {
	case errors.Is(err, client.ErrNotFound) && isOver(&rec, time.Now().Add(clocksDiffer)):
		return 0, nil
	case errors.Is(err, client.ErrNotFound):
		return 0, fmt.Errorf("%w: key %s is missing", errDiffers, cli.Quote(rec.Key))
	case err != nil:
		return 0, err
	case got.Sum64() != want.Sum64():
		return 0, fmt.Errorf("%w: key %s has another value", errDiffers, cli.Quote(rec.Key))
	}
	return 1, nil
}
