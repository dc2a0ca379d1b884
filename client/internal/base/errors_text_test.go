package base

import (
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestErrorsSayItOnce: what a server says in the words of the error's own text
// stands there once, with what it says beyond that.
func TestErrorsSayItOnce(t *testing.T) {
	for _, c := range []struct {
		cause error
		want  string
	}{
		{wire.StatusError(wire.StatusNoSpace), "server has no disk space left"},
		{&wire.RemoteError{Status: wire.StatusNoSpace}, (&wire.RemoteError{Status: wire.StatusNoSpace}).Error()},
		{errors.New("server has no disk space left: 4 MiB are free"), "server has no disk space left: 4 MiB are free"},
		{errors.New("server has no disk space leftover"), "server has no disk space left: server has no disk space leftover"},
		{errors.New("4 MiB are free"), "server has no disk space left: 4 MiB are free"},
	} {
		err := Because(ErrNoSpace, c.cause)
		if err.Error() != c.want || !errors.Is(err, ErrNoSpace) || !errors.Is(err, c.cause) {
			t.Errorf("%q, want %q", err, c.want)
		}
	}
}
