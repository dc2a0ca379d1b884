package jobs

import (
	"context"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/load"
)

// Touch gets all keys in batches, twice: a location cache that has grown takes a place over from the table before
// when its key is asked for again, and until then a get looks into both.
func Touch(ctx context.Context, o load.Options) error {
	s, err := o.Open(ctx, 0)
	if err != nil {
		return err
	}
	many, ok := s.(load.BatchStore)
	if !ok {
		return fmt.Errorf("%T has no calls for many keys", s)
	}
	const batch = 64
	k, v, errs := make([][]byte, batch), make([][]byte, batch), make([]error, batch)
	parts := (o.Records + batch - 1) / batch
	for part := range 2 * parts {
		from := part % parts * batch
		n := int(min(batch, o.Records-from))
		for i := range n {
			k[i] = o.Keys.Append(k[i][:0], from+uint64(i))
		}
		many.GetMany(ctx, k[:n], v[:n], errs[:n])
		for _, err := range errs[:n] {
			if err != nil {
				return fmt.Errorf("touching the keys: %w", err)
			}
		}
	}
	return s.Close()
}
