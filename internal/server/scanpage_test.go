package server

import (
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestPageEndsAtAValueLeftOut: a client gets a value that a page leaves out after the
// page, so nothing of the page may stand behind it: not where the store leaves it
// out, and not where it fits into the store's page and not into the message.
func TestPageEndsAtAValueLeftOut(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.ReplySize = session.MinReplySize })
	p := dial(t, srv, peerOptions{})
	room := wire.ScanRoom(session.MinReplySize, 0)
	for _, size := range []int{room - 3, room - 5, room - wire.EntrySize(0, 0), 14_000} {
		if err := p.put("k1", strings.Repeat("v", size)); err != nil {
			t.Fatal(err)
		}
		if err := p.put("k2", "v"); err != nil {
			t.Fatal(err)
		}
		body, err := p.call(func(id uint64) []byte { return wire.AppendScan(nil, id, wire.Scan{}) })
		if err != nil {
			t.Fatal(err)
		}
		page, err := wire.ParseScanReply(body)
		if err != nil {
			t.Fatal(err)
		}
		for e := range page.Entries {
			if string(e.Key) != "k1" || e.HasValue {
				t.Errorf("value of %d bytes: %q, has its value %v", size, e.Key, e.HasValue)
			}
		}
		if page.Count != 1 || !page.More || string(page.Next) != "k1" {
			t.Errorf("value of %d bytes: %d entries, more %v, next %q", size, page.Count, page.More, page.Next)
		}
	}
}
