package handle

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want wire.Status
		text bool
	}{
		{store.ErrNotFound, wire.StatusNotFound, false},
		{&store.CorruptError{Key: []byte("k"), Detail: "bit rot"}, wire.StatusCorrupt, true},
		{store.ErrReadOnlyDisk, wire.StatusNoSpace, false},
		{errors.New("secret path /var/x"), wire.StatusInternal, false},
		{session.ErrNoBuffer, wire.StatusOverloaded, false},
		{fmt.Errorf("%w: %w", store.ErrFatal, store.ErrOutcomeUnknown), wire.StatusUnknown, true},
	} {
		st, text := statusOf(c.err)
		if st != c.want || (text != "") != c.text {
			t.Errorf("%v: %v, %q", c.err, st, text)
		}
	}
}
