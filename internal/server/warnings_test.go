package server

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/store"
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
		"too much":       {func(c *Config) { c.MemoryLimit = uint64(machine.Memory()) + 1<<30 }, more},
		"all that it is": {func(c *Config) { c.MemoryLimit = uint64(machine.Memory()) }, ""},
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

// TestReloadedSecretsAreJudged: a secret that can be guessed is warned of, too, when it
// comes while the node runs.
func TestReloadedSecretsAreJudged(t *testing.T) {
	const weak = "a secret looks like words"
	var log bytes.Buffer
	srv := startServer(t, func(c *Config) {
		c.Secret, c.Logger = []byte("kd83-JJd7_2mdPq0sK4v"), slog.New(slog.NewTextHandler(&log, nil))
	})
	reload := func(word string) {
		t.Helper()
		if err := srv.SetTenants(t.Context(), []Tenant{{Name: "late", Secret: secret.New([]byte(word)), Prefix: "p"}}); err != nil {
			t.Fatal(err)
		}
	}
	reload("Pq0sK4vkd83-JJd7_2md")
	reload("aaaaaaaaaaaaaaaa")
	if err := srv.Shutdown(t.Context()); err != nil { // nobody writes the log any more
		t.Error(err)
	}
	if got := log.String(); strings.Count(got, weak) != 1 || !strings.Contains(got, "tenant=late") {
		t.Errorf("not said once, of the tenant:\n%s", got)
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

// modesOf returns the modes of files, links not followed.
func modesOf(t *testing.T, paths ...string) (modes []fs.FileMode) {
	t.Helper()
	for _, p := range paths {
		info, err := os.Lstat(p)
		if err != nil {
			t.Fatal(err)
		}
		modes = append(modes, info.Mode())
	}
	return modes
}

// TestForeignFilesAreLeftAlone: a node that is given a directory that is no store
// does not start and changes no mode in it; in a store's directory it changes those
// of the store's files alone, and nothing through a link. Of a space's too.
func TestForeignFilesAreLeftAlone(t *testing.T) {
	write := func(dir string, name ...string) string {
		path := filepath.Join(append([]string{dir}, name...)...)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o644), os.Chmod(path, 0o644)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := t.TempDir()
	files := []string{write(foreign, "passwd"), write(foreign, "LOCK"), write(foreign, "data", "000001.log"), write(foreign, "ssl", "ca.pem")}
	cfg := testConfig()
	cfg.FS, cfg.DataDir = nil, foreign
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); !errors.Is(err, store.ErrForeignDir) {
		t.Errorf("started in a foreign directory: %v", err)
	}
	for i, mode := range modesOf(t, files...) {
		if mode != 0o644 {
			t.Errorf("%s now has mode %v", files[i], mode)
		}
	}

	own := filepath.Join(t.TempDir(), "data")
	start := func() string {
		return startLog(t, func(c *Config) {
			c.DataDir, c.FS, c.Secret = own, nil, secretOf("")
			c.Tenants = []Tenant{{Name: "anna", Secret: secret.New(secretOf("anna"))}}
		})
	}
	start()
	outside := write(t.TempDir(), "outside")
	if err := os.Symlink(outside, filepath.Join(own, "REVOKED.new")); err != nil {
		t.Fatal(err)
	}
	theirs := []string{outside, write(own, "notes.txt"), write(own, "data", "notes.txt"), write(own, "notes", "STORE")}
	ours := []string{write(own, "STORE.new"), filepath.Join(own, "STORE")}
	spaces, err := filepath.Glob(filepath.Join(own, "*", "anna", "STORE"))
	if err != nil || len(spaces) != 1 {
		t.Fatalf("the space's STORE: %q, %v", spaces, err)
	}
	ours = append(ours, spaces...)
	for _, path := range ours {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	start()
	for i, mode := range modesOf(t, theirs...) {
		if mode != 0o644 {
			t.Errorf("%s, which is not the node's, now has mode %v", theirs[i], mode)
		}
	}
	for i, mode := range modesOf(t, ours...) {
		if mode != 0o600 {
			t.Errorf("%s has mode %v", ours[i], mode)
		}
	}
}

// TestDataDirIsALink: where data_dir is a link, the directory behind it is meant: its
// files are closed, and its mode is judged, not the link's, which is always 0777.
func TestDataDirIsALink(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Mkdir(there, 0o700), os.Symlink(there, link)); err != nil {
		t.Fatal(err)
	}
	start := func() string { return startLog(t, func(c *Config) { c.DataDir, c.FS = link, nil }) }
	if log := start(); strings.Contains(log, "look into the data directory") {
		t.Errorf("warned of the link:\n%s", log)
	}
	if err := errors.Join(os.Chmod(there, 0o755), os.Chmod(filepath.Join(there, "STORE"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if log := start(); strings.Count(log, "look into the data directory") != 1 {
		t.Errorf("not warned of the directory:\n%s", log)
	}
	if mode := modesOf(t, filepath.Join(there, "STORE"))[0]; mode != 0o600 {
		t.Errorf("STORE has mode %v", mode)
	}
}
