package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSearchPath: both programs take the first file of the same places, and name it so
// that it is found from anywhere.
func TestSearchPath(t *testing.T) {
	home, work := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "conf"))
	t.Chdir(work)
	personal := filepath.Join(home, "conf", "rdmakv", "config.yaml")
	if want := []string{"config.yaml", personal, "/etc/rdmakv/config.yaml"}; !slices.Equal(searchFiles(), want) {
		t.Errorf("%q, want %q", searchFiles(), want)
	}
	if err := os.MkdirAll(filepath.Dir(personal), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(personal, "log_level: warn\n")
	near := filepath.Join(work, "config.yaml")
	for _, scope := range []Scope{ForServer, ForClient} {
		if l, err := Load(Options{Scope: scope}); err != nil || l.File != personal || l.LogLevel != "warn" || l.Sources["log_level"] != personal+":1" {
			t.Errorf("%v: %+v, %v", scope, l.File, err)
		}
		write(near, "log_level: error\n")
		if l, err := Load(Options{Scope: scope}); err != nil || l.LogLevel != "error" || l.Sources["log_level"] != resolved(t, near)+":1" {
			t.Errorf("%v: %+v %v, %v", scope, l.File, l.Sources["log_level"], err)
		}
		// A relative name is printed as an absolute one, too.
		if l, err := Load(Options{Scope: scope, File: "config.yaml"}); err != nil || l.File != resolved(t, near) {
			t.Errorf("%v: %+v, %v", scope, l.File, err)
		}
		if err := os.Remove(near); err != nil {
			t.Fatal(err)
		}
	}
	// A file that was found is refused if every user may write it, wherever it is; one
	// that is named is accepted.
	for _, path := range []string{personal, near} {
		write(path, "log_level: error\n")
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(Options{Scope: ForClient}); err == nil || !strings.Contains(err.Error(), "0666") || !strings.Contains(err.Error(), "--config") {
			t.Errorf("%s, which everybody may write: %v", path, err)
		}
		if _, err := Load(Options{Scope: ForClient, File: path}); err != nil {
			t.Error(err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A file that others put into the working directory is refused, unless it is
	// named.
	write(near, "log_level: error\n")
	if err := checkOwner(near); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		owner   uint32
		me      int
		refused bool
	}{{0, 1000, false}, {1000, 1000, false}, {1001, 1000, true}, {1000, 0, true}, {0, 0, false}} {
		err := foreign(c.owner, c.me)
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "--config") {
			t.Errorf("a file of %d, read by %d: %v", c.owner, c.me, err)
		}
	}
}

// resolved is a path as the working directory is called.
func resolved(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
