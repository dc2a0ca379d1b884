package store

import (
	"context"
	"log/slog"

	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/image"
)

// What a group began with, if it began with keys (R19). The base says it in the ingest that makes the replica (image.BaseOf), and it is compared as long as the base is there still, at entry 1:
//
//	when a store is opened       the making, or the first checkpoint behind it, was cut short: before the replica takes part
//	when it is sent              the first learner gets nothing else; it costs no pass of its own
//
// A replica whose base is another one is stopped, and says why. Behind the first checkpoint nothing can be compared, because the base has moved on. What that costs, and what not:
// docs/decisions/2026-11-30-base-digest.md.

// begins works out what the base has of the replica's shards. Nothing of that changes meanwhile: the base has all of it, and nobody orders in them.
func (m *member) begins(ctx context.Context, s *Store) (disk.GroupBase, error) {
	snap := s.disk.Snapshot()
	b, err := image.BaseOf(ctx, snap, m.found.Shards, func(context.Context, int) error {
		select {
		case <-s.fence.Down:
			return s.fence.Failed()
		default:
			return nil
		}
	})
	if closeErr := snap.Close(); err == nil {
		err = closeErr
	}
	return b, err
}

// beganSo compares what the base has with what the group began with, if it was opened there. Caller holds part.
func (m *member) beganSo(s *Store) error {
	if !m.opened || m.found.Applied != 1 {
		return nil
	}
	m.opened = false
	want, err := disk.GroupBaseIn(s.disk, uint32(m.group))
	if err != nil || want == nil {
		return err
	}
	if at, err := checkpoint.StateOf(s.disk, m.group); err != nil || at.Applied != 1 {
		return err
	}
	got, err := m.begins(m.ctx, s)
	if err == nil {
		err = image.SameBase(&got, want)
	}
	return err
}

// refuse stops a replica that must not take part, and says why.
func (m *member) refuse(s *Store, err error) {
	m.gone = true
	s.fence.Report(slog.LevelError, "a replica takes no part in its group: recover the group from another node, or give this node's replica up (kvclient cluster replace)", "group", m.group, "replica", m.id, "err", err)
}
