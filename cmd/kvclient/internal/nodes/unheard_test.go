package nodes

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// TestUnheardIsNotUndone: of a node that did not answer, kvclient does not say that
// nothing was done: it says that this is not known, how to find out, and by a typed
// error.
func TestUnheardIsNotUndone(t *testing.T) {
	var out bytes.Buffer
	a := &app.App{Stdout: &out, Stderr: &out, Output: "json"}
	err := showAdmin(a, adminReport{
		Op: wire.AdminRevoke.String(), Nodes: map[string]json.RawMessage{},
		Failed:  map[string]string{"n1": "not allowed"},
		Unknown: map[string]string{"n2": "no answer in time"},
	})
	if !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Fatalf("%v", err)
	}
	failed, unknown, _ := strings.Cut(err.Error(), "\n")
	if failed != "revoke was not done at n1: not allowed" {
		t.Errorf("refused: %q", failed)
	}
	if strings.Contains(unknown, "not done") || !strings.Contains(unknown, "may have been done at n2") ||
		!strings.Contains(unknown, "ask again") || !strings.Contains(unknown, "admin tenants") || strings.Contains(unknown, "\n") {
		t.Errorf("not answered: %q", unknown)
	}
	if !strings.Contains(out.String(), `"unknown"`) {
		t.Errorf("printed %s", &out)
	}
	if err := showAdmin(a, adminReport{Op: "limits", Failed: map[string]string{"": "x"}}); errors.Is(err, client.ErrOutcomeUnknown) || err == nil {
		t.Errorf("%v", err)
	}
}
