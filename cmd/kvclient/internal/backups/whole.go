package backups

import (
	"context"
	"fmt"
	"io"

	"github.com/rdmakv/rdmakv/internal/backup"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A whole is a value in parts, read from the records of a backup, part by part. It has one piece in memory.
type whole struct {
	ctx   context.Context
	from  backup.Target
	m     *backup.Manifest
	shard uint16 // of the head, and so of its parts
	head  layout.Head
	keys  layout.PartKeys

	at    *backup.Entry     // whose records are there
	parts map[string][]byte // of this value, in that piece
	next  int               // part, from 1 on
	left  []byte            // of the one before
}

// newWhole returns the value that a head of a shard stands for. It is one goroutine's, and good until ctx ends. backup.ErrPiece.
func newWhole(ctx context.Context, from backup.Target, m *backup.Manifest, shard uint16, value []byte) (*whole, error) {
	h, err := layout.ParseHead(value)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backup.ErrPiece, err)
	}
	keys, ok := layout.NewPartKeys(h.ID, func(key []byte) bool { return cluster.ShardOf(key, m.Shards) == shard })
	if !ok {
		return nil, fmt.Errorf("%w: a value in parts that cannot be in shard %d", backup.ErrPiece, shard)
	}
	return &whole{ctx: ctx, from: from, m: m, shard: shard, head: h, keys: keys, next: 1}, nil
}

// Read implements io.Reader. Errors: backup.ErrPiece for a part that is not there or has another length, those of the target.
func (w *whole) Read(b []byte) (int, error) {
	for len(w.left) == 0 {
		if w.next > w.head.Parts() {
			return 0, io.EOF
		}
		part, err := w.part(w.next)
		if err != nil {
			return 0, err
		}
		w.left, w.next = part, w.next+1
	}
	n := copy(b, w.left)
	w.left = w.left[n:]
	return n, nil
}

// part finds a part.
func (w *whole) part(n int) ([]byte, error) {
	key := w.keys.Key(n)
	e := w.m.Holding(w.shard, key)
	if e != nil && e != w.at {
		w.at, w.parts = nil, make(map[string][]byte)
		err := backup.Read(w.ctx, w.from, e, func(r backup.Record) error {
			if id, _, ok := layout.ParsePartKey(r.Key); ok && id == w.head.ID {
				w.parts[string(r.Key)] = r.Value
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		w.at = e
	}
	part, there := w.parts[string(key)]
	if _, length := w.head.Part(n); e == nil || !there || len(part) != length {
		return nil, fmt.Errorf("%w: part %d of %d of a value in shard %d is not there", backup.ErrPiece, n, w.head.Parts(), w.shard)
	}
	return part, nil
}
