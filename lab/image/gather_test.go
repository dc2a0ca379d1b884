package image

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/lab/deb"
)

// packaged makes programs in front of PATH that stand for apt and dpkg: each
// package unpacks to what lies in a directory of its name.
func packaged(t *testing.T, files map[string]string, depends map[string]string) {
	t.Helper()
	root, bin := t.TempDir(), t.TempDir()
	for name, from := range files {
		to := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, ok := strings.CutPrefix(from, "-> "); ok {
			if err := os.Symlink(target, to); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	deps := ""
	for pkg, on := range depends {
		deps += pkg + ") echo '  Depends: " + on + "';;\n"
	}
	for name, script := range map[string]string{
		"apt-cache": "case $1 in policy) echo '  Candidate: 1.0';; depends) case $3 in\n" + deps + "esac;; esac",
		"apt-get":   `for a; do :; done; touch "${a%%=*}.deb"`,
		"dpkg":      `p=$(basename "$2" .deb); mkdir -p "$3"; cp -a "` + root + `/$p/." "$3"`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// TestGather: a program of one package, by a link of another, with its libraries.
func TestGather(t *testing.T) {
	program, err := exec.LookPath("ls")
	if err != nil {
		t.Skip("no ls")
	}
	if needed, err := needs(program); err != nil || len(needed) == 0 {
		t.Skipf("ls needs no libraries here: %v", err)
	}
	packaged(t, map[string]string{
		"thing/usr/bin/real":    program,
		"thing-link/usr/bin/it": "-> real",
	}, nil)
	to := t.TempDir()
	used, err := Gather(t.Context(), t.TempDir(), to, []string{"thing", "thing-link"}, []string{"it"})
	if err != nil {
		t.Fatal(err)
	}
	if len(used) != 1 || used[0].Name != "thing" || used[0].Version != "1.0" {
		t.Errorf("taken from %+v", used)
	}
	cmd := exec.Command(filepath.Join(to, "bin/it"), "-d", "/")
	cmd.Env = []string{"LD_LIBRARY_PATH=" + filepath.Join(to, "lib")}
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "/" {
		t.Errorf("the copy prints %q, %v", out, err)
	}
	if libs, _ := filepath.Glob(filepath.Join(to, "lib/libc.so*")); len(libs) == 0 {
		t.Error("no libc beside it")
	}
	if _, err := Gather(t.Context(), t.TempDir(), to, []string{"thing"}, []string{"other"}); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "other") {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestGatherLibraries: what this machine lacks is looked for in the packages that
// the given ones depend on.
func TestGatherLibraries(t *testing.T) {
	packaged(t, map[string]string{
		"libthing/usr/lib/x86_64-linux-gnu/libthing.so.9": "/proc/self/exe",
	}, map[string]string{"thing": "libthing"})
	root := deb.Package{Name: "thing", Version: "1.0", Dir: t.TempDir()}
	g := gathering{ctx: t.Context(), cache: t.TempDir(), roots: []deb.Package{root}, used: make(map[string]deb.Package)}
	lib, err := g.library("libthing.so.9")
	if err != nil || !strings.HasSuffix(lib, "usr/lib/x86_64-linux-gnu/libthing.so.9") || g.used["libthing"].Version != "1.0" {
		t.Errorf("%s, %v, %+v", lib, err, g.used)
	}
	if _, err := g.library("libnothing.so.1"); !errors.Is(err, ErrMissing) {
		t.Errorf("one that is nowhere: %v", err)
	}
}
