package deb

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tools puts programs of the given scripts first in the PATH.
func tools(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

const policy = `cat <<END
thing:
  Installed: (none)
  Candidate: 1:2.0-3
END
`

func TestUnpack(t *testing.T) {
	tools(t, map[string]string{
		"apt-cache": policy,
		"apt-get":   `echo "$@" >>` + filepath.Join(t.TempDir(), "calls") + `; [ "$3" = "thing=1:2.0-3" ] && echo data >thing_2.0-3_amd64.deb`,
		"dpkg":      `[ "$1" = -x ] && mkdir -p "$3/usr" && cp "$2" "$3/usr/file"`,
	})
	cache := filepath.Join(t.TempDir(), "cache")
	p, err := Unpack(t.Context(), cache, "thing")
	if err != nil {
		t.Fatal(err)
	}
	if p.Version != "1:2.0-3" || p.Name != "thing" {
		t.Errorf("package %+v", p)
	}
	if data, err := os.ReadFile(filepath.Join(p.Dir, "usr/file")); err != nil || string(data) != "data\n" {
		t.Errorf("file is %q, %v", data, err)
	}
	tools(t, map[string]string{"apt-cache": policy, "apt-get": "exit 1", "dpkg": "exit 1"})
	if again, err := Unpack(t.Context(), cache, "thing"); err != nil || again != p {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	entries, err := os.ReadDir(cache)
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the cache: %v, %v", entries, err)
	}
}

func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		scripts map[string]string
		want    string
		debian  bool
	}{
		"no such package": {map[string]string{"apt-cache": "echo 'thing:'"}, "apt-get update", true},
		"none to be had":  {map[string]string{"apt-cache": "echo '  Candidate: (none)'"}, "apt-get update", true},
		"no lists":        {map[string]string{"apt-cache": "echo 'E: broken' >&2; exit 100"}, "E: broken", true},
		"no mirror":       {map[string]string{"apt-cache": policy, "apt-get": "echo 'E: no route' >&2; exit 100"}, "E: no route", true},
		"damaged package": {map[string]string{"apt-cache": policy, "apt-get": "touch a.deb", "dpkg": "echo 'not an archive' >&2; exit 2"}, "not an archive", false},
		"nothing comes":   {map[string]string{"apt-cache": policy, "apt-get": "true"}, "0 files", false},
	} {
		t.Run(name, func(t *testing.T) {
			tools(t, c.scripts)
			cache := t.TempDir()
			_, err := Unpack(t.Context(), cache, "thing")
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNoDebian) != c.debian {
				t.Errorf("error %v", err)
			}
			if entries, err := os.ReadDir(cache); err != nil || len(entries) != 0 {
				t.Errorf("left in the cache: %v, %v", entries, err)
			}
		})
	}
	tools(t, map[string]string{"apt-cache": "exec sleep 1000"})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := Unpack(ctx, t.TempDir(), "thing"); !errors.Is(err, context.Canceled) || errors.Is(err, ErrNoDebian) {
		t.Errorf("when time is up: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Unpack(t.Context(), t.TempDir(), "thing"); !errors.Is(err, ErrNoDebian) {
		t.Errorf("without apt: %v", err)
	}
	if _, err := Unpack(t.Context(), t.TempDir(), "--option"); err == nil {
		t.Error("an option is a name")
	}
}

func TestDepends(t *testing.T) {
	tools(t, map[string]string{"apt-cache": `printf 'linux-image-amd64\n  Depends: base\n  Depends: linux-image-6.1.0-56-amd64\n'`})
	if dep, err := Depends(t.Context(), "linux-image-amd64", "linux-image-"); err != nil || dep != "linux-image-6.1.0-56-amd64" {
		t.Errorf("depends on %q, %v", dep, err)
	}
	if _, err := Depends(t.Context(), "linux-image-amd64", "freebsd-"); !errors.Is(err, ErrNoDebian) {
		t.Errorf("no such dependency: %v", err)
	}
}
