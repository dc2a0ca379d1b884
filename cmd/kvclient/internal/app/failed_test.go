package app

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/client"
)

// TestFailedKeys: each key is reported with its own reason, keys of the same reason
// in one line; a key that may have been done is not hidden behind those that were
// not.
func TestFailedKeys(t *testing.T) {
	var errOut bytes.Buffer
	a := &App{Stderr: &errOut}
	var failed KeysErrors
	for i, why := range []error{
		&client.Unreached{Server: "a:1", Node: "a", Err: syscall.ECONNREFUSED, Asked: true},
		fmt.Errorf("%w: b is silent", client.ErrOutcomeUnknown),
		client.ErrDenied,
		&client.Unreached{Server: "a:1", Node: "a", Err: syscall.ECONNREFUSED, Asked: true},
		client.ErrDenied,
	} {
		key := fmt.Sprintf("k%d", i)
		failed = a.AddFailed(failed, []byte(key), &client.Error{Op: "delete", Key: key, Err: why})
	}
	a.Complain(failed)
	want := `kvclient: "k0", "k3": no server at a:1 (node a): connection refused (kvclient doctor a:1 tells more)
kvclient: "k1": rdmakv delete: outcome unknown: the request was sent, but no reply came: b is silent
kvclient: "k2", "k4": rdmakv delete: not allowed for this tenant
`
	if errOut.String() != want {
		t.Errorf("got\n%swant\n%s", &errOut, want)
	}
	if !errors.Is(failed, client.ErrOutcomeUnknown) || !errors.Is(failed, client.ErrDenied) || len(client.UnreachedServers(failed)) != 1 {
		t.Errorf("%v", failed)
	}
}
