package write

import (
	"fmt"
	"iter"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// NewPut checks a put.
func NewPut(key, value []byte, terms wire.Terms) (Write, error) {
	if err := base.CheckKey(key); err != nil {
		return Write{}, err
	}
	if len(value) > layout.MaxValueLen {
		return Write{}, fmt.Errorf("%w: %d bytes, at most %d", base.ErrTooLarge, len(value), layout.MaxValueLen)
	}
	return Write{Type: wire.TypePut, Key: key, Data: value, Terms: terms}, nil
}

// NewDelete checks a delete, under the condition of a version if that is not 0.
func NewDelete(key []byte, version uint64) (Write, error) {
	w := Write{Type: wire.TypeDelete, Key: key}
	if version != 0 {
		w.Terms.If, w.Terms.IfVersion = wire.CondVersion, version
	}
	return w, base.CheckKey(key)
}

// NewIncrement checks an increment.
func NewIncrement(key []byte, delta int64) (Write, error) {
	return Write{Type: wire.TypeUpdate, op: wire.UpdateIncrement, Key: key, delta: delta}, base.CheckKey(key)
}

// NewTouch checks a touch.
func NewTouch(key []byte, ttlMicros uint64) (Write, error) {
	w := Write{Type: wire.TypeUpdate, op: wire.UpdateTouch, Key: key}
	w.Terms.TTLMicros, w.Terms.If = ttlMicros, wire.CondExists
	return w, base.CheckKey(key)
}

// NewBatch is a batch of so many encoded parts.
func NewBatch(parts []byte, count int) Write {
	return Write{Type: wire.TypeBatch, Data: parts, count: count}
}

// From says that the value stands in memory of the program, where the server may READ it.
func (w *Write) From(own *device.Owned) { w.own = own }

// parts walks the parts of a batch, which this package has encoded.
func (w *Write) parts() iter.Seq[wire.BatchPart] {
	parts, err := wire.ParseBatchParts(w.Data, uint16(w.count))
	if err != nil {
		panic(fmt.Sprintf("client: a batch does not parse: %v", err))
	}
	return parts.All
}

// batchRefusal is the error of a batch one of whose conditions did not hold.
func (w *Write) batchRefusal() error {
	i := 0
	for part := range w.parts() {
		if int64(i) == w.Reply.Number {
			return fmt.Errorf("write %d, of %s: %w", i, base.QuoteKey(part.Key), base.ConditionError(part.If, w.Reply.Version, i))
		}
		i++
	}
	return fmt.Errorf("%w: part %d of a batch of %d was refused", base.ErrProtocol, w.Reply.Number, i)
}
