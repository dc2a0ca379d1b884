package server

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/secret"
)

// startLog starts and ends a node and returns what it has logged.
func startLog(t *testing.T, change func(*Config)) string {
	t.Helper()
	var log bytes.Buffer
	cfg := testConfig()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	change(&cfg)
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	return log.String()
}

// TestWarnings: each dangerous setting is warned of, once, and nothing else is.
func TestWarnings(t *testing.T) {
	const (
		public = "this node is PUBLIC"
		weak   = "a secret looks like words"
		more   = "memory_limit is more than this machine"
		good   = "kd83-JJd7_2mdPq0sK4v"
	)
	word := func(s string) secret.Text { return secret.New([]byte(s)) }
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"public here":    {func(c *Config) { c.Listen = "127.0.0.1:0" }, ""},
		"public":         {func(c *Config) { c.Listen = "0.0.0.0:0" }, public},
		"with a secret":  {func(c *Config) { c.Listen, c.Secret = "0.0.0.0:0", []byte(good) }, ""},
		"for tenants":    {func(c *Config) { c.Listen, c.Private = "0.0.0.0:0", true }, ""},
		"a phrase":       {func(c *Config) { c.Secret = []byte("open sesame, please") }, ""},
		"words":          {func(c *Config) { c.Secret = []byte("open sesame please") }, weak},
		"a tenant's":     {func(c *Config) { c.Tenants = []Tenant{{Name: "a", Secret: word("aaaaaaaaaaaaaaaa"), Prefix: "p"}} }, weak},
		"too much":       {func(c *Config) { c.MemoryLimit = uint64(memory.Machine()) + 1<<30 }, more},
		"all that it is": {func(c *Config) { c.MemoryLimit = uint64(memory.Machine()) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			log := startLog(t, c.change)
			for _, text := range []string{public, weak, more} {
				want := 0
				if text == c.want {
					want = 1
				}
				if got := strings.Count(log, `level=WARN msg="`+text); got != want {
					t.Errorf("%q is said %d times, want %d:\n%s", text, got, want, log)
				}
			}
			if strings.Contains(log, "err=<nil>") {
				t.Errorf("an error that is none: %s", log)
			}
		})
	}
}

// TestDataDirIsClosed: files that others may read lose those rights at the start; a
// directory that others may look into is warned of.
func TestDataDirIsClosed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	start := func() string {
		return startLog(t, func(c *Config) { c.DataDir, c.FS = dir, nil })
	}
	if log := start(); strings.Contains(log, "look into the data directory") {
		t.Errorf("of a directory that it has made:\n%s", log)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "data", "left.log")
	if err := os.WriteFile(left, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if log := start(); strings.Count(log, "look into the data directory") != 1 || !strings.Contains(log, dir) {
		t.Errorf("not warned of:\n%s", log)
	}
	if info, err := os.Stat(left); err == nil && info.Mode().Perm() != 0o600 { // Pebble may have removed it
		t.Errorf("a file has mode %v", info.Mode())
	}
	open := 0
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if info, ierr := e.Info(); err == nil && ierr == nil && info.Mode().IsRegular() && strings.HasPrefix(e.Name(), "LOCK") && info.Mode().Perm()&0o077 != 0 {
			open++
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
}
