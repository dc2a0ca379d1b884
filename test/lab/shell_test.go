package lab

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestShell types into "make lab-shell" what its greeting proposes: ping goes over
// verbs, and gets go on while the server is stopped.
func TestShell(t *testing.T) {
	program, _ := command(t)
	bin := *binFlag
	if bin == "" {
		bin = t.TempDir()
		build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "../../cmd/kvserver", "../../cmd/kvclient")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	const mark = "and now the showcase"
	shell := exec.CommandContext(within(t), program, "shell", "-bin", bin, "-c",
		"kvclient put hello world && kvclient get hello && kvclient ping && echo "+mark+" && showcase")
	shell.Dir = filepath.Join("..", "..")
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ping, show, found := strings.Cut(string(out), mark)
	if !found {
		t.Fatalf("said only: %s", out)
	}
	for _, want := range []string{`(?m)^fabric +verbs$`, `(?m)^device +rxe0`, `(?m)^GID +::ffff:10\.77\.0\.1`, `(?m)^MTU +4096$`, "world"} {
		if !regexp.MustCompile(want).MatchString(ping) {
			t.Errorf("get and ping do not say %s: %s", want, ping)
		}
	}
	// Whoever had to wait for the server, waited for the 2 seconds of its pause. A get may
	// need the server all the same, before or after that: in a guest that is slow a client
	// may be too late for its lease, for instance. Of ten thousand one did.
	all := regexp.MustCompile(`(?m)^all .* (\S+)$`).FindStringSubmatch(show)
	share := regexp.MustCompile(`answered one-sidedly (\S+) %`).FindStringSubmatch(show)
	if all == nil || share == nil || !strings.Contains(show, " 0 errors") {
		t.Fatalf("the showcase: %s", show)
	}
	if one, err := strconv.ParseFloat(share[1], 64); err != nil || one < 99.9 {
		t.Errorf("%s %% of the gets were answered one-sidedly (%v): %s", share[1], err, show)
	}
	if longest, err := time.ParseDuration(all[1]); err != nil || longest >= 2*time.Second {
		t.Errorf("the longest get took %s (%v): %s", all[1], err, show)
	}
	t.Log(show)
}
