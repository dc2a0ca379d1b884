package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cli"
)

// TestInspectLog: inspect log finds its directory, says in one line what is wrong, and has
// the exit codes of the other commands. What it shows is tested in package inspect.
func TestInspectLog(t *testing.T) {
	data := t.TempDir()
	dir := filepath.Join(data, "log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errOut bytes.Buffer
		a := &app{stdout: &out, stderr: &errOut, env: []string{"RDMAKV_CONFIG=", "RDMAKV_DATA_DIR=" + data}, fabrics: newFabrics}
		if code := a.run(t.Context(), append([]string{"inspect", "log"}, args...)); code != want {
			t.Errorf("%q: exit code %d, expected %d\n%s%s", args, code, want, &out, &errOut)
		}
		if strings.Count(errOut.String(), "\n") > 1 {
			t.Errorf("%q: more than one line:\n%s", args, &errOut)
		}
		return out.String(), errOut.String()
	}
	if _, said := run(cli.ExitError); said != "kvserver: "+dir+": log: there is no log in this directory\n" {
		t.Error(said)
	}
	if err := os.WriteFile(filepath.Join(dir, "LIFE"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if shown, said := run(cli.ExitError); !strings.Contains(shown, "segments   0, 0 free files\n") || !strings.Contains(said, "damaged file LIFE") {
		t.Error(shown, said)
	}
	if err := os.WriteFile(filepath.Join(dir, "00000001.seg"), bytes.Repeat([]byte("junk"), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {dir}, {"--segment", "1", "--records", "-o", "json"}} {
		shown, said := run(cli.ExitError, args...)
		if !strings.HasPrefix(said, "kvserver: the log is damaged in 2 places, first: log: damaged file LIFE: none of its two copies is whole") || !strings.Contains(shown, "its header: magic") || !strings.Contains(shown, "00000001.seg") {
			t.Errorf("%q: %s%s", args, shown, said)
		}
	}
	run(cli.ExitError, filepath.Join(data, "not-there"))
	for _, args := range [][]string{{"a", "b"}, {"--segment", "zero"}, {"-o", "xml"}} {
		run(cli.ExitUsage, args...)
	}
}
