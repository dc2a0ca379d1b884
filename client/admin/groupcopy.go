package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// How a group is copied: the node that leads it opens a copy, which is all that the group has at one entry of its log, and the copy is read shard by
// shard. A page that was not heard is asked for again. When the node is lost, or has closed the copy, a copy of the next leader is of another entry,
// so whoever copies begins the group anew.

// ErrCopyLost: the copy of a group cannot be read to its end, because its node is lost or has closed it. Copy the group anew.
var ErrCopyLost = errors.New("the copy of the group is lost: copy the group anew")

// A CopyRecord is a key of a copied group, or a piece of its value (wire.CopyRecord).
type CopyRecord = wire.CopyRecord

// A GroupCopy is what a group has at one entry of its log. One goroutine uses it, and closes it.
type GroupCopy struct {
	Group       uint32
	Node        string   // that led the group
	Index, Term uint64   // of the last entry that it has
	Shards      []uint16 // rising

	p  *peer.Peer
	id uint64
}

const (
	copyPatience = 5 * time.Second        // for a node that is asked to open a copy
	copyRest     = 200 * time.Millisecond // between two looks for a leader that opens one
	copyRead     = 10 * time.Second       // for a page, over as many sessions as it takes
)

// CopyGroup opens a copy of a group of a cluster with replicas, at the node that leads it. All that was acknowledged before the call is in it. It looks
// for a leader until ctx ends. It needs the admin right.
//
// Errors: client.ErrOptions: there is no such group; client.ErrUnavailable: nobody has opened one in time, and why the last node did not; client.ErrNoMap,
// client.ErrUnsupported: the cluster has no replicas, or is of an older version; client.ErrDenied.
func (a *Admin) CopyGroup(ctx context.Context, group uint32) (*GroupCopy, error) {
	const op = "cluster-backup"
	fail := func(err error) (*GroupCopy, error) { return nil, a.fail(op, nil, err) }
	if err := a.rt.Refresh(ctx, nil); err != nil {
		return fail(err)
	}
	last := errors.New("no node was asked")
	for hint := ""; ; {
		m := a.rt.Map()
		switch {
		case m == nil:
			return fail(client.ErrNoMap)
		case m.Replication == nil:
			return fail(fmt.Errorf("%w: a cluster without replicas is backed up node by node: kvserver backup", client.ErrUnsupported))
		}
		i := slices.IndexFunc(foundersOf(m), func(g Group) bool { return g.ID == group })
		if i < 0 {
			return fail(fmt.Errorf("%w: there is no group %d", client.ErrOptions, group))
		}
		var nodes []string
		if hint != "" {
			nodes = append(nodes, hint)
		}
		for _, r := range foundersOf(m)[i].Replicas {
			nodes = append(nodes, r.Node)
		}
		for n, node := range nodes {
			if n > 0 && node == hint {
				continue
			}
			c, to, err := a.openCopy(ctx, node, group)
			switch {
			case err == nil && c != nil:
				return c, nil
			case errors.Is(err, client.ErrDenied), errors.Is(err, client.ErrAuth), errors.Is(err, client.ErrUnsupported), errors.Is(err, client.ErrClosed):
				return nil, err
			case err != nil:
				last = err
			}
			if hint = to; to != "" && to != node {
				break // it is asked next, without a rest if it is another one
			}
		}
		if !base.Pause(ctx, copyRest) {
			return fail(base.Because(client.ErrUnavailable, fmt.Errorf("no node has copied group %d: %w", group, last)))
		}
		_ = a.rt.Refresh(ctx, nil) // who has come since; if that fails, what is known has to do
	}
}

// openCopy asks one node. Without an error and a copy it leads not, or not yet, and leader is its hint.
func (a *Admin) openCopy(ctx context.Context, node string, group uint32) (c *GroupCopy, leader string, err error) {
	p, err := a.rt.Peer(node)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, copyPatience)
	defer cancel()
	q := wire.CopyQuestion{Do: wire.CopyOpen, Group: group}
	text, err := document(ctx, p, wire.AdminCopy, []byte(q.String()))
	if err != nil {
		return nil, "", err
	}
	answer, err := wire.ParseCopyAnswer(text, group)
	switch {
	case err != nil:
		return nil, "", p.Fail("cluster-backup", nil, "", fmt.Errorf("%w: %w", client.ErrProtocol, err))
	case answer.State == wire.CopyOpened:
		return &GroupCopy{Group: group, Node: node, Index: answer.Index, Term: answer.Term, Shards: answer.Shards, p: p, id: answer.ID}, "", nil
	case answer.State == wire.CopyBusy:
		return nil, node, p.Fail("cluster-backup", nil, "", fmt.Errorf("%w: %s", client.ErrOverloaded, wire.CleanText([]byte(answer.Why))))
	}
	return nil, answer.Leader, nil
}

// Page returns the next records of a shard: those behind a key, or with an offset that is not 0 a piece of the value of that key from there on; nil: the first
// of the shard. A page has 2 MiB and some at most, and is the caller's. more: there may be further records, or the value has further bytes. It may be asked for again.
//
// Errors: ErrCopyLost; client.ErrCorrupt: the disk of the node is damaged there, which another copy from it is, too; client.ErrProtocol for a page that cannot be the next; ctx's.
func (c *GroupCopy) Page(ctx context.Context, shard uint16, key []byte, offset uint32) (records []CopyRecord, more bool, err error) {
	q := wire.CopyQuestion{Do: wire.CopyRead, ID: c.id, Shard: shard, Key: key, Offset: offset}
	within, cancel := context.WithTimeout(ctx, copyRead)
	defer cancel()
	text, err := document(within, c.p, wire.AdminCopy, []byte(q.String()))
	switch {
	case err != nil && (ctx.Err() != nil || errors.Is(err, client.ErrCorrupt)):
		return nil, false, err
	case err != nil:
		return nil, false, base.Because(ErrCopyLost, err)
	}
	records, more, err = wire.ParseCopyPage(text)
	if err == nil && len(records) > 0 && !follows(&records[0], key, offset) {
		err = fmt.Errorf("a page that does not go on where the last one ended")
	}
	if err != nil {
		return nil, false, c.p.Fail("cluster-backup", nil, "", fmt.Errorf("%w: %w", client.ErrProtocol, err))
	}
	return records, more, nil
}

// follows says whether a record is one that was asked for.
func follows(r *CopyRecord, key []byte, offset uint32) bool {
	if offset > 0 {
		return string(r.Key) == string(key) && r.Offset == offset
	}
	return r.Offset == 0 && string(r.Key) > string(key)
}

// Close has the node let the copy go. If it does not hear that, it does so by itself when nobody has read the copy for five minutes.
func (c *GroupCopy) Close(ctx context.Context) error {
	q := wire.CopyQuestion{Do: wire.CopyClose, ID: c.id}
	_, err := document(ctx, c.p, wire.AdminCopy, []byte(q.String()))
	return err
}
