package house

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLate: a step that takes more than twice its budget is found, one that took long
// because the machine is slow is not, and a machine counts as twice as slow at most.
func TestLate(t *testing.T) {
	for _, c := range []struct {
		what, took, want string
	}{
		{"within their budgets", "unit 290 300\nrace 650 700\ndemo 5 0", ""},
		{"twice is allowed", "unit 600 300\nrace 650 700", ""},
		{"one grew", "unit 290 300\nrace 650 700\nfuzz 573 250", "fuzz"},
		{"one grew on a slow machine", "unit 450 300\nrace 1050 700\nfuzz 1000 250", "fuzz"},
		{"all of a slow machine", "unit 490 300\nrace 1339 700\nmutants 616 470\nfuzz 573 250\ne2e 693 700", ""},
		{"too slow for any machine", "unit 1300 300\nrace 2900 700", "unit race"},
		{"quick others do not make a budget smaller", "unit 10 300\nrace 1400 700", ""},
		{"alone", "unit 601 300", "unit"},
		{"nothing", "", ""},
	} {
		cmd := exec.Command(filepath.Join(root, "scripts", "late"))
		cmd.Stdin = strings.NewReader(c.took)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := strings.Join(strings.Fields(string(out)), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
