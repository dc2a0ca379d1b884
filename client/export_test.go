package client

import (
	"context"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// What tests of this package see beyond programs.
const (
	LeastBufferBytes = minBufferBytes
	MostInflight     = maxInflight
)

// FetchPage asks for the first page of a scan of all keys of a single server.
func FetchPage(ctx context.Context, c *Client) error {
	scans, err := c.scanners(ctx, ScanOptions{})
	if err == nil {
		_, err = scans.last.fetchPage(ctx, 0)
	}
	return err
}

// PollEvents asks once for events.
func PollEvents(p *peer.Peer, limit *base.Limit, prefix []byte, opts WatchOptions) ([]Event, error) {
	page, err := pollOnce(p, limit, p.Current(), pollAt{node: p.Node, most: maxPoll}, prefix, opts, false)
	return page.events, err
}

// AloneAt is the position p has at one node, as a server that is the only one writes it.
func AloneAt(p Position, node string) Position { return Position{c: p.of(node)} }

// PositionOf is the position of a server that is the only one.
func PositionOf(c wire.Cursor) Position { return Position{c: c} }

// OwnedBy is the registered memory of a buffer.
func OwnedBy(b *Buffer) *device.Owned { return b.mem }
