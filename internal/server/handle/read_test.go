package handle

import (
	"bytes"
	"testing"

	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// TestEmptyPage: the store may have passed many keys that are not there any
// more; the position is then behind them, whether there are entries or not.
func TestEmptyPage(t *testing.T) {
	long := bytes.Repeat([]byte("n"), maxKey)
	for _, c := range []struct {
		page store.ScanPage
		next []byte
	}{
		{store.ScanPage{More: true, Next: long}, long},
		{store.ScanPage{More: true, Next: long, Entries: []store.ScanEntry{{Key: []byte("a"), Value: []byte("v"), ValLen: 1}}}, long},
		{store.ScanPage{More: true, Next: long, Entries: []store.ScanEntry{{Key: []byte("a"), Value: make([]byte, 9000), ValLen: 9000}}}, []byte("a")},
		{store.ScanPage{}, nil},
	} {
		msg := appendPage(nil, 1, c.page, session.MinReplySize, false)
		m, err := wire.ParseScanReply(wire.Body(msg))
		if err != nil || len(msg) > session.MinReplySize || !bytes.Equal(m.Next, c.next) || m.More != c.page.More || int(m.Count) != len(c.page.Entries) {
			t.Errorf("%d bytes, %d entries, next of %d bytes, %v", len(msg), m.Count, len(m.Next), err)
		}
	}
}
