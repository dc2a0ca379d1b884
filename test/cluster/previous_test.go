package cluster

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// previousRelease is the commit of the release before this one, whose programs work beside those of this tree while a cluster is upgraded. When a release is made,
// its commit comes here, and feature.Here ends with the next level if a form is added behind it.
const previousRelease = "4d34d473803a00a4629940b98ae530a4fd2a8122"

// previous returns the directory of kvserver and kvclient of the previous release. They are built from its commit, once for each checkout. A tree that is no checkout has no
// history to build from, nor has a shallow one, and the test is skipped; a whole checkout without that commit is a failure, because the test would never run there.
func previous(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	if out, err := exec.Command("git", "-C", root, "rev-parse", "--is-inside-work-tree").CombinedOutput(); err != nil {
		t.Skipf("the tree is no git checkout, so the previous release cannot be built: %s", bytes.TrimSpace(out))
	}
	dir := filepath.Join(root, ".cache", "previous", previousRelease)
	if _, err := os.Stat(filepath.Join(dir, "kvclient")); err == nil {
		return dir
	}
	if out, err := exec.Command("git", "-C", root, "cat-file", "-e", previousRelease+"^{commit}").CombinedOutput(); err != nil {
		if shallow, err := exec.Command("git", "-C", root, "rev-parse", "--is-shallow-repository").Output(); err == nil && string(bytes.TrimSpace(shallow)) == "true" {
			t.Skipf("the checkout is shallow and has no commit %s, of which the previous release is: git fetch --unshallow", previousRelease)
		}
		t.Fatalf("the history of this checkout has no commit %s, of which the previous release is: %s", previousRelease, bytes.TrimSpace(out))
	}
	src := t.TempDir()
	archive := exec.Command("git", "-C", root, "archive", "--format=tar", previousRelease)
	unpack := exec.Command("tar", "-x", "-C", src)
	pipe, err := archive.StdoutPipe()
	must(t, err)
	unpack.Stdin = pipe
	var said bytes.Buffer
	archive.Stderr, unpack.Stderr = &said, &said
	must(t, archive.Start())
	if err := unpack.Run(); err != nil {
		t.Fatalf("the previous release cannot be unpacked: %v: %s", err, &said)
	}
	if err := archive.Wait(); err != nil {
		t.Fatalf("the previous release cannot be read from the history: %v: %s", err, &said)
	}
	// It is built beside its place, and comes there whole: two tests may build at once.
	made := t.TempDir()
	build := exec.Command("go", "build", "-o", made+"/", "./cmd/kvserver", "./cmd/kvclient")
	build.Dir = src
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the previous release cannot be built: %v\n%s", err, out)
	}
	must(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"kvserver", "kvclient"} {
		b, err := os.ReadFile(filepath.Join(made, name))
		must(t, err)
		half := filepath.Join(dir, name+"."+filepath.Base(made))
		must(t, os.WriteFile(half, b, 0o755))
		must(t, os.Rename(half, filepath.Join(dir, name)))
	}
	out, err := exec.Command(filepath.Join(dir, "kvserver"), "--version").CombinedOutput()
	must(t, err)
	t.Logf("the previous release is %s", strings.TrimSpace(string(out)))
	return dir
}
