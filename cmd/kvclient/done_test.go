package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// TestDoneBeforeAnError: what a command has done before an error is printed behind
// the error, and nothing is if it has done nothing.
func TestDoneBeforeAnError(t *testing.T) {
	for _, keys := range []int64{0, 3} {
		var errOut bytes.Buffer
		a := &app.App{Stdin: strings.NewReader(""), Stdout: new(bytes.Buffer), Stderr: &errOut, Env: []string{"HOME=/nonexistent"}}
		show := app.NewProgress(&errOut, "deleted", 0, nil)
		show.Bytes.Store(-1)
		show.Keys.Store(keys)
		a.Finish(show, errors.New("the server is gone"))
		if errOut.Len() > 0 {
			t.Errorf("before the error: %s", &errOut)
		}
		if code := a.Run(t.Context(), []string{"get"}, commands); code != cli.ExitUsage { // an error
			t.Errorf("exit code %d", code)
		}
		lines := strings.Split(strings.TrimSuffix(errOut.String(), "\n"), "\n")
		if !strings.HasPrefix(lines[0], "kvclient: get: KEY is missing") ||
			keys == 0 && len(lines) != 1 || keys > 0 && (len(lines) != 2 || !strings.HasPrefix(lines[1], "deleted 3 keys in ")) {
			t.Errorf("%d keys: %q", keys, lines)
		}
	}
}
