package ibv

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// program says what a program that opens a device gets.
const program = `package main

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

func main() {
	list, err := ibv.Devices()
	fmt.Println("devices", len(list), "unavailable", errors.Is(err, ibv.ErrUnavailable), "error", err)
	_, err = ibv.NewEventChannel()
	fmt.Println("channel", err == nil, "unavailable", errors.Is(err, ibv.ErrUnavailable), "error", err)
}
`

// toolchain skips where there is no Go: in a guest, which gets test binaries.
func toolchain(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds programs; make unit runs it")
	}
	if _, err := exec.LookPath("go"); err != nil {
		if os.Getenv("RDMAKV_LAB") == "" {
			t.Fatal(err)
		}
		t.Skip("no Go in the lab's guest")
	}
}

// build compiles the program with more environment.
func build(t *testing.T, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "program")
	run(t, append(os.Environ(), env...), "go", "build", "-o", bin, source)
	return bin
}

func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// wantLines checks that both lines of the program say unavailable, and why.
func wantLines(t *testing.T, out string, why ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 {
		t.Fatalf("said %q", out)
	}
	for _, line := range lines {
		if !strings.Contains(line, "unavailable true") {
			t.Errorf("is not ErrUnavailable: %s", line)
		}
		for _, w := range why {
			if !strings.Contains(line, w) {
				t.Errorf("does not say %q: %s", w, line)
			}
		}
	}
}

// TestBuildsEverywhere: without cgo, and for systems that have no RDMA.
func TestBuildsEverywhere(t *testing.T) {
	toolchain(t)
	for _, target := range []string{"linux/" + runtime.GOARCH, "linux/arm64", "darwin/arm64", "windows/amd64"} {
		t.Run(target, func(t *testing.T) {
			goos, arch, _ := strings.Cut(target, "/")
			run(t, append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch), "go", "vet", ".")
		})
	}
}

func TestWithoutCgo(t *testing.T) {
	toolchain(t)
	wantLines(t, run(t, nil, build(t, "CGO_ENABLED=0")), "built without cgo", "CGO_ENABLED=1")
}

// compiler skips where cgo cannot work.
func compiler(t *testing.T) {
	t.Helper()
	toolchain(t)
	if out := run(t, os.Environ(), "go", "env", "CGO_ENABLED", "CC"); !strings.HasPrefix(out, "1\n") || runtime.GOOS != "linux" {
		t.Skipf("no cgo here: %q", out)
	}
}

// TestStub is what a system gets whose layouts of rdma-core are not known.
func TestStub(t *testing.T) {
	compiler(t)
	bin := build(t, "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g -DRK_STUB")
	wantLines(t, run(t, nil, bin), "neither amd64 nor arm64", "fabric iwarp")
}

// TestEnvironmentOnce: a program that loads both libraries changes the environment
// once, before any of them, and not at all where it has the variable. setenv is seen
// by a library in front of the C library.
func TestEnvironmentOnce(t *testing.T) {
	compiler(t)
	const variable = "RDMAV_ALLOW_DISASSOC_DESTROY"
	dir := t.TempDir()
	source, lib := filepath.Join(dir, "seen.c"), filepath.Join(dir, "seen.so")
	text := `#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int setenv(const char *name, const char *value, int over)
{
	int (*next)(const char *, const char *, int) = dlsym(RTLD_NEXT, "setenv");
	fprintf(stderr, "setenv %s\n", name);
	return next(name, value, over);
}
`
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, os.Environ(), "cc", "-shared", "-fPIC", "-o", lib, source, "-ldl")
	bin := build(t, "CGO_ENABLED=1")
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, variable+"=") })
	env = append(env, "LD_PRELOAD="+lib)
	if out := run(t, env, bin); strings.Count(out, "setenv "+variable) != 1 {
		t.Errorf("the environment is not changed once:\n%s", out)
	}
	if out := run(t, append(env, variable+"=0"), bin); strings.Contains(out, "setenv "+variable) {
		t.Errorf("the environment is changed though it has the variable:\n%s", out)
	}
}

// TestWithoutHeaders: a build on a machine that has no header of rdma-core has verbs
// like any other. The compiler is given headers that stop it in their place, so a
// file that includes one of them is found.
func TestWithoutHeaders(t *testing.T) {
	compiler(t)
	dir := t.TempDir()
	for _, header := range []string{"infiniband/verbs.h", "infiniband/verbs_api.h", "rdma/rdma_cma.h"} {
		path := filepath.Join(dir, header)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte("#error a header of rdma-core is not to be included\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	bin := build(t, "CGO_ENABLED=1", "CGO_CFLAGS=-O2 -g -I"+dir)
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"p_ibv_create_qp", "p_rdma_connect"} {
		if !slices.ContainsFunc(syms, func(s elf.Symbol) bool { return s.Name == want }) {
			t.Errorf("a build without the headers has no %s: it is the stub", want)
		}
	}
}

// TestOneBinary: a program with all of rdma-core in reach needs none of it to
// start, and says what to install where it is not.
func TestOneBinary(t *testing.T) {
	compiler(t)
	bin := build(t, "CGO_ENABLED=1")
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(libs, func(l string) bool { return strings.Contains(l, "ibverbs") || strings.Contains(l, "rdmacm") }) {
		t.Errorf("needs %v", libs)
	}
	syms, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		t.Fatal(err)
	}
	for _, s := range syms {
		if n := strings.TrimLeft(s.Name, "_"); strings.HasPrefix(n, "ibv_") || strings.HasPrefix(n, "rdma_") {
			t.Errorf("has the dynamic symbol %s", s.Name)
		}
	}
	t.Run("without the libraries", func(t *testing.T) {
		root := machineOf(t, bin)
		cmd := exec.Command("/program")
		if !inChroot(cmd, root) {
			t.Skip("no chroot here")
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		wantLines(t, string(out), libVerbs, "cannot be loaded", "apt-get install "+pkgVerbs)
	})
	t.Run("with a broken library", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, libVerbs), bytes.Repeat([]byte("no library"), 100), 0o755); err != nil {
			t.Fatal(err)
		}
		out := run(t, append(os.Environ(), "LD_LIBRARY_PATH="+dir), bin)
		wantLines(t, out, libVerbs, dir, "apt-get install "+pkgVerbs)
	})
}

// machineOf is a directory with bin, and the libraries that it names, and
// nothing else: a machine without rdma-core.
func machineOf(t *testing.T, bin string) string {
	t.Helper()
	root := t.TempDir()
	install := func(from, to string) {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(root, to)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(root, to), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install(bin, "/program")
	for _, word := range strings.Fields(run(t, os.Environ(), "ldd", bin)) {
		if strings.HasPrefix(word, "/") {
			install(word, word)
		}
	}
	return root
}
