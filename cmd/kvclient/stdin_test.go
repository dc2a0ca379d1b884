//go:build unix

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/apptest"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// TestPutWithoutStdin: a standard input that was closed is no empty value. Go's runtime
// opens /dev/null for it, to read and write, and a caller may have given it so, too:
// the message says both, and how an empty value is given. If a shell opens it, to read,
// the empty value is meant.
func TestPutWithoutStdin(t *testing.T) {
	closed, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	empty, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if !cli.NeverOpen(closed) || cli.NeverOpen(empty) || cli.NeverOpen(strings.NewReader("")) {
		t.Errorf("closed %v, empty %v", cli.NeverOpen(closed), cli.NeverOpen(empty))
	}
	addr := apptest.Alone(t)
	run := func(stdin *os.File, args ...string) (int, string) {
		var out, errOut bytes.Buffer
		a := &app.App{Stdin: stdin, Stdout: &out, Stderr: &errOut, Env: []string{"RDMAKV_SERVERS=" + addr, "RDMAKV_FABRIC=iwarp", "HOME=/nonexistent"}}
		return a.Run(t.Context(), args, commands), errOut.String()
	}
	if code, text := run(closed, "put", "k"); code != cli.ExitUsage || text != "kvclient: put: standard input is closed or /dev/null, and VALUE is missing; an empty value is: put KEY ''\n" {
		t.Errorf("exit code %d, %s", code, text)
	}
	for _, value := range []string{"v", ""} {
		if code, text := run(closed, "put", "k", value); code != cli.ExitOK {
			t.Errorf("exit code %d, %s", code, text)
		}
	}
	if code, text := run(empty, "put", "k"); code != cli.ExitOK {
		t.Errorf("exit code %d, %s", code, text)
	}
}
