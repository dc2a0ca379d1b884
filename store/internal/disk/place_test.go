package disk_test

import (
	"bytes"
	"testing"

	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/disk"
)

// TestPlaceFormat: this package finds the epoch in a position where package checkpoint, to
// which the format belongs, has put it.
func TestPlaceFormat(t *testing.T) {
	key, record := disk.PlaceForTests(0x1234)
	place, err := checkpoint.ParsePlace(record)
	if err != nil || place != (checkpoint.Place{Epoch: 0x1234}) || !bytes.Equal(key, checkpoint.PositionKey()) {
		t.Errorf("%+v under %q, %v", place, key, err)
	}
}
