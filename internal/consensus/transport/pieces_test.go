package transport

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// A tallied reader gives the bytes of a snapshot, each of which says where it stands, and counts them.
type tallied struct {
	from io.Reader
	n    atomic.Int64
}

func (c *tallied) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// numberedBytes are some bytes of which no two pieces are alike.
func numberedBytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16)*31
	}
	return b
}

// TestPiecesComeAhead: while a piece is read the next one comes, and the sender makes as many as it has room for; nothing comes beyond that, however long
// the receiver takes, and before it reads nothing does. What it reads is what was sent, though others come while it reads slowly.
func TestPiecesComeAhead(t *testing.T) {
	const n = 12
	data := numberedBytes(n*pieceBytes - 100)
	inVirtualTime(t, func(t *testing.T, a, b *site) {
		from := &tallied{from: bytes.NewReader(data)}
		made := func() int { synctest.Wait(); return int(from.n.Load()+pieceBytes-1) / pieceBytes }
		b.box.receive = func(_ context.Context, _ consensus.SnapshotHead, r io.Reader) error {
			time.Sleep(patience - time.Second)
			if got := made(); got != pieces {
				t.Errorf("%d pieces were made before anybody reads, and there is room for %d", got, pieces)
			}
			var all []byte
			part := make([]byte, pieceBytes/4)
			for i := 0; ; i++ {
				k, err := io.ReadFull(r, part)
				time.Sleep(time.Second)
				all = append(all, part[:k]...)
				if err != nil {
					break
				}
				// The first part of a piece is read: this piece is here, and sinks-1 behind it; the sender has made those that follow.
				if got, want := made(), min(i/4+sinks+pieces, n); i%4 == 0 && got != want {
					t.Errorf("%d pieces were made when piece %d is read, want %d", got, i/4, want)
				}
			}
			if !bytes.Equal(all, data) {
				t.Errorf("%d bytes have come that are not the %d that were sent", len(all), len(data))
			}
			return nil
		}
		if err := a.Snapshot(t.Context(), "b", snapHead, from); err != nil {
			t.Error(err)
		}
	})
}

// TestPiecesOfWhoReadsNoMore: a receiver that gives up in the middle says why, while pieces are on their way; one that was not asked for them fetches none.
func TestPiecesOfWhoReadsNoMore(t *testing.T) {
	for _, read := range []int64{0, 1, pieceBytes, 3*pieceBytes + 1} {
		inVirtualTime(t, func(t *testing.T, a, b *site) {
			b.box.receive = func(_ context.Context, _ consensus.SnapshotHead, r io.Reader) error {
				if _, err := io.CopyN(io.Discard, r, read); err != nil {
					t.Error(err)
				}
				return consensus.ErrNotTaken
			}
			data := bytes.NewReader(numberedBytes(20 * pieceBytes))
			if err := a.Snapshot(t.Context(), "b", snapHead, data); outcome(err) != outcome(consensus.ErrNotTaken) {
				t.Errorf("behind %d bytes: %v", read, err)
			}
		})
	}
}
