package backups

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/backup"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/store/layout"
)

const (
	// batchBytes and batchKeys are where a batch ends. A value of half of that or more is put by itself.
	batchBytes = 256 << 10
	batchKeys  = 512
	// putPatience is for how long writes are made again while a group has no leader, and putRest how long between two tries.
	putPatience = 2 * time.Minute
	putRest     = 300 * time.Millisecond
)

// A restoring is one run of cluster restore.
type restoring struct {
	a       *app.App
	from    backup.Target
	id      string
	workers int
	again   bool

	c      *client.Client
	m      *backup.Manifest
	shards int // of the cluster that is written to
	show   *app.Progress

	put, expired, mortal atomic.Int64 // keys: written, left out because their time was over, of those written that will expire
}

// A restoreReport is what cluster restore prints. Names in JSON are never changed.
type restoreReport struct {
	Backup   string  `json:"backup"`
	Keys     int64   `json:"keys"`
	Expired  int64   `json:"expired"`  // left out: their time was over
	Compared int64   `json:"compared"` // keys of the backup that the cluster has as it should
	Found    int64   `json:"found"`    // keys of the cluster, afterwards
	Seconds  float64 `json:"seconds"`
}

// errNotEmpty: the cluster has keys.
var errNotEmpty = errors.New("the cluster has keys, and a backup is restored into an empty one: make a new cluster, or say --continue if the keys are of a restore of this backup that was cut short")

// Values above partsAbove are written in parts of partBytes, which a group takes: one write to it has 2 MiB at most. It is 1,024 parts at most, which make the largest value that
// there can be.
const (
	partsAbove = 1900 << 10
	partBytes  = 1 << 20
)

// dialed runs with a client that cuts large values so.
func (r *restoring) dialed(ctx context.Context) error {
	cfg, err := r.a.ClientConfig()
	if err != nil {
		return err
	}
	cfg.PartsAbove, cfg.PartBytes = partsAbove, partBytes
	within, cancel := context.WithTimeout(ctx, r.a.Config.Timeout)
	defer cancel()
	c, err := client.Dial(within, cfg)
	if err != nil {
		return err
	}
	return errors.Join(r.run(ctx, c), c.Close())
}

// run restores a backup, and compares it with what the cluster has then.
func (r *restoring) run(ctx context.Context, c *client.Client) (err error) {
	r.c = c
	if r.m, r.id, err = backup.Load(ctx, r.from, r.id); err != nil {
		return err
	}
	info, err := admin.Of(c).Cluster(ctx)
	switch {
	case err != nil:
		return err
	case info.MapVersion == 0:
		return fmt.Errorf("%w has no map yet: cluster init makes it, and restore comes after that", errCluster)
	}
	r.shards = info.Shards
	if !r.again {
		for _, err := range c.Scan(ctx, client.ScanOptions{Limit: 1, KeysOnly: true}) {
			if err != nil {
				return err
			}
			return errNotEmpty
		}
	}
	began, total := time.Now(), r.m.Totals()
	r.show = app.NewProgress(r.a.Stderr, "restored", total.Bytes, nil)
	err = each(ctx, len(r.m.Pieces), r.workers, func(ctx context.Context, i int) error { return r.piece(ctx, &r.m.Pieces[i]) })
	if r.a.Finish(r.show, err); err != nil {
		return r.cutShort(ctx, err, "not all is restored: --continue --backup "+r.id+" goes on")
	}
	compared, found, err := r.compare(ctx, total.Bytes)
	switch {
	case errors.Is(err, errDiffers):
		return fmt.Errorf("the keys are written, and do not compare: %w", err)
	case err != nil:
		return r.cutShort(ctx, err, "all is written, and not all was compared: --continue --backup "+r.id+" does both again")
	}
	report := restoreReport{r.id, r.put.Load(), r.expired.Load(), compared, found, time.Since(began).Seconds()}
	if r.a.Output == "json" {
		return r.a.PrintJSON(&report)
	}
	return r.a.Print(fmt.Sprintf("backup %s: %s keys are restored and compared, %s had expired\n", r.id, cli.Thousands(report.Keys), cli.Thousands(report.Expired)))
}

// cutShort is the error of a restore that has not come to its end, with what there is to do. Of one that was interrupted nothing is told but that, so that is said here.
func (r *restoring) cutShort(ctx context.Context, err error, what string) error {
	if ctx.Err() != nil {
		fmt.Fprintln(r.a.Stderr, what)
	}
	return fmt.Errorf("%w: %s", err, what)
}

// isOver says whether the time of a record is over, by the clock of this machine.
func isOver(rec *backup.Record, at time.Time) bool {
	return rec.Expiry != 0 && rec.Expiry <= uint64(at.UnixMicro())
}

// records reads a piece, and calls yield for each of its keys that a client could have written: parts belong to their heads. Every key is of the piece's shard.
func records(ctx context.Context, from backup.Target, m *backup.Manifest, e *backup.Entry, yield func(backup.Record) error) error {
	return backup.Read(ctx, from, e, func(rec backup.Record) error {
		if cluster.ShardOf(rec.Key, m.Shards) != e.Shard {
			return fmt.Errorf("%w: %s has a key of another shard than %d", backup.ErrPiece, e.Piece, e.Shard)
		}
		if layout.IsPartKey(rec.Key) {
			return nil
		}
		return yield(rec)
	})
}

// piece writes the keys of a piece. Those of one shard of the cluster go there together.
func (r *restoring) piece(ctx context.Context, e *backup.Entry) error {
	groups := make(map[uint16]*load)
	err := records(ctx, r.from, r.m, e, func(rec backup.Record) error {
		switch {
		case isOver(&rec, time.Now()):
			r.expired.Add(1)
			return nil
		case layout.IsHead(rec.Value):
			return r.putWhole(ctx, e.Shard, rec)
		case len(rec.Value) >= batchBytes/2:
			return r.write(ctx, []backup.Record{rec})
		}
		id := cluster.ShardOf(rec.Key, r.shards)
		l := groups[id]
		if l == nil {
			l = new(load)
			groups[id] = l
		}
		l.list, l.bytes = append(l.list, rec), l.bytes+len(rec.Key)+len(rec.Value)
		if l.bytes < batchBytes && len(l.list) < batchKeys {
			return nil
		}
		list := l.list
		*l = load{}
		return r.write(ctx, list)
	})
	for _, l := range groups {
		if err == nil && len(l.list) > 0 {
			err = r.write(ctx, l.list)
		}
	}
	r.show.Bytes.Add(e.Bytes)
	return err
}

// A load is what goes to one shard in one batch.
type load struct {
	list  []backup.Record
	bytes int
}

// write writes records of one shard of the cluster, as long as it takes: to write them again does no harm, because nobody else writes.
func (r *restoring) write(ctx context.Context, list []backup.Record) error {
	return r.patiently(ctx, func() error {
		var b client.Batch
		now := time.Now()
		mortal := 0
		for i := range list {
			opts, alive := optionsOf(&list[i], now)
			if !alive {
				continue
			}
			if opts.TTL != 0 {
				mortal++
			}
			b.PutWith(list[i].Key, list[i].Value, opts)
		}
		n := b.Len()
		if len(list) == 1 && n == 1 { // it may be larger than a batch can be
			opts, _ := optionsOf(&list[0], now)
			if _, err := r.c.PutWith(ctx, list[0].Key, list[0].Value, opts); err != nil {
				return err
			}
		} else if n > 0 {
			if _, err := r.c.WriteBatch(ctx, &b); err != nil {
				return err
			}
		}
		r.put.Add(int64(n))
		r.show.Keys.Add(int64(n))
		r.mortal.Add(int64(mortal))
		r.expired.Add(int64(len(list) - n))
		return nil
	})
}

// optionsOf are those with which a record is put. alive: its time is not over. A record keeps the moment at which it expires, by the clock of this machine.
func optionsOf(rec *backup.Record, now time.Time) (o client.PutOptions, alive bool) {
	if rec.Expiry == 0 {
		return o, true
	}
	if isOver(rec, now) {
		return o, false
	}
	left := min(rec.Expiry-uint64(now.UnixMicro()), uint64(maxTTL/time.Microsecond))
	o.TTL = time.Duration(left) * time.Microsecond
	return o, true
}

// maxTTL bounds what is left of a life: more than a century is as good as that.
const maxTTL = 100 * 365 * 24 * time.Hour

// putWhole writes a value in parts.
func (r *restoring) putWhole(ctx context.Context, shard uint16, rec backup.Record) error {
	return r.patiently(ctx, func() error {
		w, err := newWhole(ctx, r.from, r.m, shard, rec.Value)
		if err != nil {
			return err
		}
		opts, alive := optionsOf(&rec, time.Now())
		if !alive {
			r.expired.Add(1)
			return nil
		}
		if _, err := r.c.PutReader(ctx, rec.Key, w, w.head.Total, opts); err != nil {
			return err
		}
		r.put.Add(1)
		r.show.Keys.Add(1)
		if opts.TTL != 0 {
			r.mortal.Add(1)
		}
		return nil
	})
}

// patiently calls do again while the cluster may come to answer.
func (r *restoring) patiently(ctx context.Context, do func() error) error {
	for until := time.Now().Add(putPatience); ; {
		err := do()
		passes := errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrOutcomeUnknown) || errors.Is(err, client.ErrTimeout)
		if err == nil || !passes || time.Now().After(until) || !pause(ctx, putRest) {
			return err
		}
	}
}
