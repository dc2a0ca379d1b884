package image

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestArchive reads an archive back with the program whose format it is, or
// with the few lines below where that is missing.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "file")
	if err := os.WriteFile(from, []byte("from the host\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ps := parts{
		{name: "a/b/c", contents: []byte("hello"), perm: 0o755},
		{name: "a/b/d", from: from, perm: 0o644},
		{name: "empty", dir: true},
		{name: "sbin", target: "a/b"},
	}
	data, err := ps.pack()
	if err != nil {
		t.Fatal(err)
	}
	if len(data)%4 != 0 {
		t.Errorf("%d bytes are not padded", len(data))
	}
	want := []string{"a", "a/b", "a/b/c", "a/b/d", "empty", "sbin", "TRAILER!!!"}
	if got := names(t, data); !slices.Equal(got, want) {
		t.Errorf("entries are %q, not %q", got, want)
	}
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Log("no cpio here: only our own reader has read it")
		return
	}
	cmd := exec.Command(cpio, "-i", "--quiet")
	cmd.Dir = t.TempDir()
	cmd.Stdin = bytes.NewReader(data)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v: %s", err, out)
	}
	for name, want := range map[string]string{"a/b/c": "hello", "sbin/d": "from the host\n"} {
		if got, err := os.ReadFile(filepath.Join(cmd.Dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(cmd.Dir, "a/b/c")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// names lists the entries of an archive.
func names(t *testing.T, data []byte) []string {
	t.Helper()
	hex := func(b []byte) (n int) {
		for _, c := range b {
			n = n<<4 | strings.IndexByte("0123456789ABCDEF", c)
		}
		return n
	}
	round := func(n int) int { return (n + 3) &^ 3 }
	var out []string
	for len(data) >= 110 {
		if string(data[:6]) != "070701" {
			t.Fatalf("magic %q after %q", data[:6], out)
		}
		size, length := hex(data[54:62]), hex(data[94:102])
		out = append(out, string(data[110:110+length-1]))
		data = data[round(110+length)+round(size):]
	}
	return out
}

func TestKey(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := parts{{name: "x", from: file, perm: 0o755}}
	keys := map[string]string{"as it is": a.key()}
	if again := a.key(); again != keys["as it is"] {
		t.Errorf("keys %s and %s of the same parts", again, keys["as it is"])
	}
	keys["another name"] = parts{{name: "y", from: file, perm: 0o755}}.key()
	keys["another mode"] = parts{{name: "x", from: file, perm: 0o644}}.key()
	keys["contents"] = parts{{name: "x", contents: []byte("one"), perm: 0o755}}.key()
	if err := os.WriteFile(file, []byte("longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys["a changed file"] = a.key()
	seen := map[string]string{}
	for what, k := range keys {
		if other, dup := seen[k]; dup {
			t.Errorf("%s and %s have one key", what, other)
		}
		seen[k] = what
	}
}

const depFile = `kernel/a/top.ko: kernel/a/mid-dle.ko kernel/b/low.ko
kernel/a/mid-dle.ko: kernel/b/low.ko
kernel/b/low.ko:
kernel/c/alone.ko.xz:
`

func TestModules(t *testing.T) {
	m, err := ReadModules(strings.NewReader(depFile))
	if err != nil {
		t.Fatal(err)
	}
	files, err := m.Files("alone", "top", "mid_dle", "mid-dle")
	want := []string{"kernel/c/alone.ko.xz", "kernel/b/low.ko", "kernel/a/mid-dle.ko", "kernel/a/top.ko"}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("files %q, %v", files, err)
	}
	if table := string(m.Table(files[1:3])); table != "kernel/b/low.ko: \nkernel/a/mid-dle.ko: kernel/b/low.ko\n" {
		t.Errorf("table %q", table)
	}
	if _, err := m.Files("nothing"); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a module that is not there: %v", err)
	}
	if p := m.present([]string{"nothing", "alone"}); !slices.Equal(p, []string{"alone"}) {
		t.Errorf("present: %q", p)
	}
	if _, err := ReadModules(strings.NewReader("no colon\n")); err == nil {
		t.Error("a line without a colon is read")
	}
}

// TestLibraries compares with what the test binary's own libraries must be.
func TestLibraries(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if libs, err := Libraries(script); err != nil || len(libs) > 0 {
		t.Errorf("a script needs %q, %v", libs, err)
	}
	if _, err := Libraries("/no/such/file"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	libs, err := Libraries("/bin/sh")
	if err != nil {
		t.Skipf("the shell here is of no format that we read: %v", err)
	}
	if len(libs) == 0 {
		t.Skip("the shell here is static")
	}
	for _, want := range []string{"libc.so.6", "ld-linux"} {
		if !slices.ContainsFunc(libs, func(l string) bool { return strings.Contains(l, want) }) && Find("ldd") != "" {
			t.Errorf("%s is not in %q", want, libs)
		}
	}
}

// TestMissing: an error names what is missing, and the package to install.
func TestMissing(t *testing.T) {
	all := tools
	defer func() { tools = all }()
	tools = append(slices.Clone(all), tool{"no-such-program", "no-such-package"})
	_, err := userParts(Config{})
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "package") {
		t.Fatalf("error %v, want %v and a package", err, ErrMissing)
	}
	// Without a busybox nothing else is looked for.
	if Find("busybox") != "" && !strings.Contains(err.Error(), "no-such-program (package no-such-package)") {
		t.Errorf("%v does not name what is missing", err)
	}
}
