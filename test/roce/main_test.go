package roce

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/lab"
)

var (
	keepFlag = flag.String("dir", "", "directory to share with the guests; empty: a temporary one")
	e2eFlag  = flag.String("e2e", "-test.short -kills 2", "arguments of the end-to-end suite")
)

// wanted skips unless this run is to boot guests.
func wanted(t *testing.T) {
	t.Helper()
	if os.Getenv("RDMAKV_CLUSTER") == "" {
		t.Skip("boots guests for minutes: make lab-cluster runs it (RDMAKV_CLUSTER=1)")
	}
}

// share is a directory with our programs for the guests: bin/ and the test
// binaries, and tmp/ for what they make.
func share(t *testing.T) string {
	t.Helper()
	dir := *keepFlag
	if dir == "" {
		dir = t.TempDir()
	}
	for _, d := range []string{"bin", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	build(t, "build", "-o", dir+"/bin/", "../../cmd/kvserver", "../../cmd/kvclient", "./load")
	build(t, "test", "-c", "-o", dir+"/e2e.test", "../e2e")
	return dir
}

func build(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// guests boots two: the client's, g1, and the server's, g2.
func guests(t *testing.T, dir string) *lab.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cl, err := lab.NewCluster(ctx, 2, lab.Config{Dir: dir, Memory: 1536, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	})
	return cl
}

// TestEndToEnd runs the end-to-end suite in one guest against nodes in the
// other, over RoCE.
func TestEndToEnd(t *testing.T) {
	wanted(t)
	dir := share(t)
	cl := guests(t, dir)
	if err := os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS("../e2e/testdata")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	args := append([]string{"sh", "-c", `cd /mnt && exec env TMPDIR=/mnt/tmp ./e2e.test "$@"`, "e2e",
		"-test.v", "-test.timeout", "55m", "-bin", "/mnt/bin", "-fabric", "verbs", "-host", "10.77.0.2", "-agent", "10.77.0.2:7017"},
		strings.Fields(*e2eFlag)...)
	code, err := cl.Guest(1).Run(ctx, os.Stdout, os.Stderr, args...)
	if err != nil || code != 0 {
		t.Fatalf("the suite ended with exit code %d, %v", code, err)
	}
}
