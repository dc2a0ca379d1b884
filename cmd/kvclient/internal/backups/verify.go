package backups

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/backup"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// A listed backup is one of cluster backups list. Names in JSON are never changed.
type listed struct {
	Backup  string `json:"backup"`
	Cluster string `json:"cluster"`
	Keys    int64  `json:"keys"`
	Bytes   int64  `json:"bytes"`
	Pieces  int    `json:"pieces"`
	Groups  int    `json:"groups"`
	Began   int64  `json:"began"` // milliseconds since 1970
	Ended   int64  `json:"ended"`
	Why     string `json:"why,omitempty"` // its manifest cannot be read
}

// list shows the backups of a place. One whose manifest is damaged is listed with the reason.
func list(ctx context.Context, a *app.App, from backup.Target) error {
	ids, err := backup.List(ctx, from)
	if err != nil {
		return err
	}
	all := make([]listed, 0, len(ids))
	var lines []string
	for _, id := range ids {
		l := listed{Backup: id}
		m, _, err := backup.Load(ctx, from, id)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			l.Why = oneLine(err).Error()
			lines = append(lines, id+"\t"+l.Why)
		default:
			t := m.Totals()
			l = listed{id, m.Cluster, t.Keys, t.Bytes, t.Pieces, t.Groups, m.Began, m.Ended, ""}
			took := time.Duration(m.Ended-m.Began) * time.Millisecond
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s keys\t%s\tin %s", id, m.Cluster, cli.Thousands(t.Keys), cli.Bytes(t.Bytes), cli.Duration(took)))
		}
		all = append(all, l)
	}
	if a.Output == "json" {
		return a.PrintJSON(all)
	}
	return a.Print(cli.Table(lines))
}

// A verified backup is what cluster verify prints. Names in JSON are never changed.
type verified struct {
	Backup  string `json:"backup"`
	Pieces  int64  `json:"pieces"`
	Damaged int64  `json:"damaged"` // pieces that are missing, or are not what their names say
	Why     string `json:"why,omitempty"`
}

// errDamaged: pieces of a backup are.
var errDamaged = errors.New("the backup is damaged")

// verify reads all pieces of a backup, and goes on behind one that is damaged.
func verify(ctx context.Context, a *app.App, from backup.Target, id string) error {
	m, id, err := backup.Load(ctx, from, id)
	if err != nil {
		return err
	}
	v := verified{Backup: id}
	show := app.NewProgress(a.Stderr, "verified", m.Totals().Bytes, nil)
	var damaged, pieces atomic.Int64
	var first atomic.Pointer[string]
	err = each(ctx, len(m.Pieces), 4, func(ctx context.Context, i int) error {
		e := &m.Pieces[i]
		err := records(ctx, from, m, e, func(backup.Record) error { return nil })
		if errors.Is(err, backup.ErrPiece) {
			text := oneLine(err).Error()
			first.CompareAndSwap(nil, &text)
			damaged.Add(1)
			err = nil
		}
		pieces.Add(1)
		show.Keys.Add(int64(e.Keys))
		show.Bytes.Add(e.Bytes)
		return err
	})
	if v.Pieces, v.Damaged = pieces.Load(), damaged.Load(); v.Damaged > 0 {
		v.Why = *first.Load()
		err = errors.Join(err, fmt.Errorf("%w: %d of %d pieces, one of them: %s", errDamaged, v.Damaged, len(m.Pieces), v.Why))
	}
	a.Finish(show, err)
	if a.Output == "json" {
		return errors.Join(err, a.PrintJSON(&v))
	}
	if err != nil {
		return err
	}
	return a.Print(fmt.Sprintf("backup %s: all %s pieces are as their names say\n", id, cli.Thousands(v.Pieces)))
}
