package checkpoint

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// A Place is how far a base has come. It stands in the base itself, under the name
// "position" of the store's kind meta, and it is written by the same ingest as what it
// speaks of, so it is never ahead of the base and never behind:
//
//	 0       8       16       24
//	+-------+-------+--------+-------+
//	| at    | frame | newest | epoch |
//	| 64    | 64    | 64     | 64    |
//	+-------+-------+--------+-------+
//
// The base has every record of the stream before at, and none from there on. A frame of
// the log may be larger than what a checkpoint takes at once, so at may be the beginning
// of any record; frame is where the log is read from then, the beginning of the frame in
// which the record stands. It is what the log is told with Release.
type Place struct {
	At     log.Position
	Frame  log.Position   // At or before it
	Newest layout.Version // of all that the base has ever had
	Epoch  uint64         // of the store, when it was written
}

const (
	offAt     = 0
	offFrame  = offAt + 8
	offNewest = offFrame + 8
	offEpoch  = offNewest + 8
	placeLen  = offEpoch + 8
)

const positionName = "position"

// PositionKey returns the key of Pebble under which the position stands.
func PositionKey() []byte {
	return disk.AppendKey(nil, disk.StoreShard, disk.KindMeta, []byte(positionName))
}

// encode returns the value of the record.
func (p Place) encode() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, placeLen), uint64(p.At))
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Frame))
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Newest))
	return binary.LittleEndian.AppendUint64(b, p.Epoch)
}

// ParsePlace verifies the record that stood under PositionKey.
func ParsePlace(b []byte) (Place, error) {
	rec, err := disk.ParseRecord(b, PositionKey())
	if err != nil {
		return Place{}, fmt.Errorf("checkpoint: the position of the base is damaged: %w", err)
	}
	if len(rec.Value) != placeLen {
		return Place{}, fmt.Errorf("checkpoint: the position of the base has %d bytes, expected %d", len(rec.Value), placeLen)
	}
	le := binary.LittleEndian
	p := Place{
		At: log.Position(le.Uint64(rec.Value[offAt:])), Frame: log.Position(le.Uint64(rec.Value[offFrame:])),
		Newest: layout.Version(le.Uint64(rec.Value[offNewest:])), Epoch: le.Uint64(rec.Value[offEpoch:]),
	}
	if p.Frame > p.At {
		return Place{}, fmt.Errorf("checkpoint: the position of the base is %v, before the frame at %v in which it stands", p.At, p.Frame)
	}
	return p, nil
}
