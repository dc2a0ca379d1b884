package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInspectLog: the log of a store is shown for its directory and for that of the log, with all
// that a killed server had acknowledged; a store that is served, one of an older format and a damaged
// log are told in one line each.
func TestInspectLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	look := func(want int, args ...string) result {
		t.Helper()
		r := runProgram(t, nil, nil, "kvserver", append([]string{"inspect", "log"}, args...)...)
		if r.code != want || strings.Count(r.stderr, "\n") > 1 {
			t.Fatalf("%q: exit code %d, want %d\n%s%s", args, r.code, want, r.stdout, r.stderr)
		}
		return r
	}
	n := startNode(t, dir, "--sync", "off", "--log-bytes", "8MiB")
	c := dial(t, n)
	const keys = 200
	for i := range keys {
		if err := c.Put(t.Context(), fmt.Appendf(nil, "key %d", i), []byte("a value of the log")); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "log")} {
		if r := look(1, path); !strings.Contains(r.stderr, "stop the other server") {
			t.Errorf("a store that is served: %s", r.stderr)
		}
	}
	c.Close()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "log")} {
		var last struct {
			Records  int  `json:"records"`
			Clean    bool `json:"clean_stop"`
			Problems int  `json:"problem_count"`
		}
		lines := strings.Split(strings.TrimSpace(look(0, path, "-o", "json").stdout), "\n")
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
			t.Fatal(err)
		}
		if last.Records < keys || last.Clean || last.Problems != 0 {
			t.Errorf("%s: %+v, %d keys were put", path, last, keys)
		}
	}
	if r := look(0, dir, "--records"); strings.Count(r.stdout, "\n") < keys || strings.Contains(r.stdout, "a value of the log") {
		t.Errorf("the records, or what they hold: %s", r.stdout)
	}
	// The kernel had all of it, although nobody synced: inspect finds every key, too.
	if r := runProgram(t, nil, nil, "kvserver", "inspect", "--data-dir", dir, "-o", "json"); r.code != 0 || !strings.Contains(r.stdout, fmt.Sprintf(`"keys":%d,`, keys)) {
		t.Errorf("inspect: %d\n%s%s", r.code, r.stdout, r.stderr)
	}

	segments, err := filepath.Glob(filepath.Join(dir, "log", "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	f, err := os.OpenFile(segments[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("damage"), 0)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := look(1, dir); !strings.Contains(r.stderr, "the log is damaged") || !strings.Contains(r.stdout, filepath.Base(segments[0])) {
		t.Errorf("damage: %s%s", r.stdout, r.stderr)
	}
	if err := os.WriteFile(filepath.Join(dir, "STORE"), []byte("damage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := look(1, dir); !strings.Contains(r.stdout, filepath.Base(segments[0])) {
		t.Errorf("a store that cannot be opened: %s%s", r.stdout, r.stderr)
	}

	old := filepath.Join(t.TempDir(), "old")
	unpackDir(t, filepath.Join("testdata", "stored", "stopped.tar.gz"), old)
	if r := look(1, old); !strings.Contains(r.stderr, "it has format 2, and a start makes one of format 4 of it") {
		t.Errorf("an older format: %s", r.stderr)
	}
	look(1, t.TempDir())
}
