package backups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/backup"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/cluster"
)

const (
	// besides is how many groups are copied side by side. Each needs memory for a piece and a page (measured: docs/decisions/2026-11-30-cluster-backup.md).
	besides = 2
	// groupTries is how often a group is begun anew because its leader was lost, and groupPatience how long a leader is looked for.
	groupTries    = 5
	groupPatience = time.Minute
)

// A copying is one run of cluster backup.
type copying struct {
	a    *app.App
	to   backup.Target
	rate float64 // MiB a second; 0: no bound
	dry  bool

	pace pace
	of   *admin.Admin
	show *app.Progress

	mu sync.Mutex // guards what follows
	m  backup.Manifest
	copyReport
}

// A copyReport is what cluster backup prints. Names in JSON are never changed.
type copyReport struct {
	Backup  string  `json:"backup"` // its id
	Place   string  `json:"place"`
	DryRun  bool    `json:"dry_run"`
	Groups  int     `json:"groups"`
	Keys    int64   `json:"keys"` // with the parts of large values
	Bytes   int64   `json:"bytes"`
	Pieces  int     `json:"pieces"`
	Written int     `json:"written_pieces"` // that the place did not have
	Wrote   int64   `json:"written_bytes"`
	Mended  int     `json:"mended_pieces"` // of the written ones, those that the place had, and damaged
	Again   int     `json:"begun_anew"`    // groups whose leader was lost while they were copied, each time
	Seconds float64 `json:"seconds"`
	LeftOut []space `json:"left_out,omitempty"` // spaces of tenants
}

// run makes a backup.
func (r *copying) run(ctx context.Context, c *client.Client) error {
	r.of = admin.Of(c)
	info, err := r.of.Cluster(ctx)
	switch {
	case err != nil:
		return err
	case info.MapVersion == 0:
		return fmt.Errorf("%w has no map yet: cluster init makes it", errCluster)
	case info.Groups == 0:
		return fmt.Errorf("%w has no replicas: kvserver backup is for its nodes, one by one", errCluster)
	}
	if err := backup.Claim(ctx, r.to, info.ID, r.dry); err != nil {
		return oneLine(err)
	}
	var silent []string
	if r.LeftOut, silent = spacesOf(ctx, r.of, info.Nodes); ctx.Err() != nil {
		return ctx.Err()
	}
	if text := leftOut(r.LeftOut, silent); text != "" {
		fmt.Fprintln(r.a.Stderr, text)
	}
	estimate := int64(0) // what the last backup had; without one nobody knows
	if last, _, err := backup.Load(ctx, r.to, ""); err == nil {
		estimate = last.Totals().Bytes
	} else if !errors.Is(err, backup.ErrNoBackup) && !errors.Is(err, backup.ErrTarget) {
		fmt.Fprintf(r.a.Stderr, "the last backup is of no use for an estimate: %v\n", err)
	}
	began := time.Now()
	r.m.Head = backup.Head{Cluster: info.Name, ClusterID: info.ID, MapVersion: info.MapVersion, Shards: info.Shards, Began: began.UnixMilli()}
	r.pace.rate = r.rate * (1 << 20)
	r.show = app.NewProgress(r.a.Stderr, "copied", estimate, nil)
	err = each(ctx, len(info.Founders), besides, func(ctx context.Context, i int) error { return r.group(ctx, &info.Founders[i]) })
	if err == nil {
		err = r.seal(ctx)
	}
	if r.a.Finish(r.show, err); err != nil {
		return err
	}
	r.Place, r.DryRun, r.Seconds = r.to.String(), r.dry, time.Since(began).Seconds()
	return r.print()
}

// seal makes a backup of the pieces, which are all written.
func (r *copying) seal(ctx context.Context) error {
	slices.SortFunc(r.m.Groups, func(a, b backup.Group) int { return cmp.Compare(a.Group, b.Group) })
	slices.SortStableFunc(r.m.Pieces, func(a, b backup.Entry) int { return cmp.Compare(a.Shard, b.Shard) }) // a shard's are in order
	r.m.Ended = max(time.Now().UnixMilli(), r.m.Began)
	t := r.m.Totals()
	r.Backup, r.Groups, r.Keys, r.Bytes, r.Pieces = backup.ID(r.m.Began), t.Groups, t.Keys, t.Bytes, t.Pieces
	if r.dry {
		_, err := r.m.Encode()
		return err
	}
	return backup.Seal(ctx, r.to, &r.m, r.Backup)
}

func (r *copying) print() error {
	if r.a.Output == "json" {
		return r.a.PrintJSON(&r.copyReport)
	}
	verb := "backup " + r.Backup + ":"
	if r.dry {
		verb = "dry run, nothing is written:"
	}
	text := fmt.Sprintf("%s %d groups, %s keys, %s in %s pieces; %s pieces of %s were not there", verb, r.Groups, cli.Thousands(r.Keys), cli.Bytes(r.Bytes),
		cli.Thousands(int64(r.Pieces)), cli.Thousands(int64(r.Written)), cli.Bytes(r.Wrote))
	if r.Mended > 0 {
		text += fmt.Sprintf(", of which %s were there, and damaged: look after the disk of %s", cli.Thousands(int64(r.Mended)), r.Place)
	}
	return r.a.Print(text + "\n")
}

// group copies a group, from the beginning if its leader is lost: what it has copied by then is of another entry than what the next leader copies. The pieces that
// are alike stand in the target by then.
func (r *copying) group(ctx context.Context, g *admin.Group) error {
	for try := 1; ; try++ {
		entries, of, err := r.once(ctx, g)
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.m.Groups = append(r.m.Groups, *of)
			r.m.Pieces = append(r.m.Pieces, entries...)
			return nil
		}
		if !errors.Is(err, admin.ErrCopyLost) || try == groupTries || ctx.Err() != nil {
			return fmt.Errorf("group %d: %w", g.ID, err)
		}
		r.mu.Lock()
		r.Again++
		r.mu.Unlock()
	}
}

// once copies a group from one leader.
func (r *copying) once(ctx context.Context, g *admin.Group) (entries []backup.Entry, of *backup.Group, err error) {
	within, cancel := context.WithTimeout(ctx, groupPatience)
	defer cancel()
	c, err := r.of.CopyGroup(within, g.ID)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(over) // it closes by itself, later
	}()
	if !slices.Equal(c.Shards, g.Shards) {
		return nil, nil, fmt.Errorf("%w: node %s copies shards %v of the group, and the map says %v", client.ErrProtocol, c.Node, c.Shards, g.Shards)
	}
	for _, shard := range c.Shards {
		of := shardCopy{r: r, c: c, shard: shard}
		if err := of.run(ctx); err != nil {
			return nil, nil, err
		}
		entries = append(entries, of.entries...)
	}
	return entries, &backup.Group{Group: c.Group, Index: c.Index, Term: c.Term, Leader: c.Node, Shards: c.Shards}, nil
}

// A shardCopy is the copy of one shard.
type shardCopy struct {
	r       *copying
	c       *admin.GroupCopy
	shard   uint16
	cutter  backup.Cutter
	entries []backup.Entry
}

// run reads the shard page by page.
func (s *shardCopy) run(ctx context.Context) error {
	var last []byte
	var part *backup.Record // a value of which not all has come
	size := uint32(0)       // of that value
	for more := true; more; {
		offset := uint32(0)
		if part != nil {
			offset = uint32(len(part.Value))
		}
		var page []admin.CopyRecord
		var err error
		if page, more, err = s.c.Page(ctx, s.shard, last, offset); err != nil {
			return err
		}
		read := 0
		for i := range page {
			p := &page[i]
			read += len(p.Key) + len(p.Data)
			last = p.Key
			if cluster.ShardOf(p.Key, s.r.m.Shards) != s.shard {
				return fmt.Errorf("%w: node %s has a key of another shard in shard %d", client.ErrProtocol, s.c.Node, s.shard)
			}
			rec := backup.Record{Key: p.Key, Value: p.Data, Expiry: p.Expiry}
			switch {
			case p.Whole():
			case part == nil:
				part, size = &backup.Record{Key: p.Key, Value: append(make([]byte, 0, p.Size), p.Data...), Expiry: p.Expiry}, p.Size
				continue
			case p.Size != size || p.Expiry != part.Expiry:
				return fmt.Errorf("%w: node %s has two values under one key of one copy", client.ErrProtocol, s.c.Node)
			default:
				if part.Value = append(part.Value, p.Data...); len(part.Value) < int(size) {
					continue
				}
				rec, part = *part, nil
			}
			if err := s.add(ctx, rec); err != nil {
				return err
			}
		}
		s.r.show.Bytes.Add(int64(read))
		if err := s.r.pace.wait(ctx, read); err != nil {
			return err
		}
	}
	if part != nil {
		return fmt.Errorf("%w: node %s has ended in the middle of a value", client.ErrProtocol, s.c.Node)
	}
	return s.keep(ctx, s.cutter.End())
}

// add adds a record, and writes the piece that ends with it.
func (s *shardCopy) add(ctx context.Context, rec backup.Record) error {
	s.r.show.Keys.Add(1)
	return s.keep(ctx, s.cutter.Add(rec))
}

// keep writes a piece, if there is one and the target has it not.
func (s *shardCopy) keep(ctx context.Context, p *backup.Piece) error {
	if p == nil {
		return nil
	}
	kept, err := backup.Keep(ctx, s.r.to, p, s.r.dry)
	if err != nil {
		return fmt.Errorf("write to %s: %w", s.r.to, oneLine(err))
	}
	if kept != backup.Reused {
		s.r.mu.Lock()
		s.r.Written++
		s.r.Wrote += int64(len(p.Bytes))
		if kept == backup.Mended {
			s.r.Mended++
		}
		s.r.mu.Unlock()
	}
	s.entries = append(s.entries, backup.Entry{Shard: s.shard, Piece: p.Sum.String(), Bytes: int64(len(p.Bytes)), Keys: p.Keys, First: p.First})
	return nil
}
