//go:build unix

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestPutWithoutStdin: a standard input that was closed is no empty value. Go's
// runtime opens /dev/null for it, to read and write, which may have been given so, too:
// the message says both, and how an empty value is given. One that a shell opens, to
// read, is meant.
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
	if !neverOpen(closed) || neverOpen(empty) || neverOpen(strings.NewReader("")) {
		t.Errorf("closed %v, empty %v", neverOpen(closed), neverOpen(empty))
	}
	addr := alone(t)
	run := func(stdin *os.File, args ...string) (int, string) {
		var out, errOut bytes.Buffer
		a := &app{stdin: stdin, stdout: &out, stderr: &errOut, env: []string{"RDMAKV_SERVERS=" + addr, "RDMAKV_FABRIC=iwarp", "HOME=/nonexistent"}}
		return a.run(t.Context(), args), errOut.String()
	}
	if code, text := run(closed, "put", "k"); code != exitUsage || text != "kvclient: put: standard input is closed or /dev/null, and VALUE is missing; an empty value is: put KEY ''\n" {
		t.Errorf("exit code %d, %s", code, text)
	}
	for _, value := range []string{"v", ""} {
		if code, text := run(closed, "put", "k", value); code != exitOK {
			t.Errorf("exit code %d, %s", code, text)
		}
	}
	if code, text := run(empty, "put", "k"); code != exitOK {
		t.Errorf("exit code %d, %s", code, text)
	}
}
