//go:build linux && cgo

package ibv

import (
	"errors"
	"strings"
	"testing"
)

// TestLoadErrors: libraries that are not there, or are another's.
func TestLoadErrors(t *testing.T) {
	for _, c := range []struct {
		load      func(string) error
		name, pkg string
		say       string
	}{
		{loadVerbs, "libibverbs.so.99", pkgVerbs, "No such file"},
		{loadCM, "librdmacm.so.99", pkgCM, "No such file"},
		{loadVerbs, "libc.so.6", pkgVerbs, "has no function ibv_"},
		{loadCM, "libc.so.6", pkgCM, "has no function rdma_"},
	} {
		err := c.load(c.name)
		var load *LoadError
		if !errors.As(err, &load) || !errors.Is(err, ErrUnavailable) {
			t.Fatalf("%s: %v", c.name, err)
		}
		if load.Library != c.name || load.Package != c.pkg || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if inLab() {
		// The failures above took nothing from the tables.
		if err := errors.Join(Load(), LoadCM()); err != nil {
			t.Error(err)
		}
	}
}
