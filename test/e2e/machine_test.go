package e2e

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// procLines returns the values of one field in a pattern of files of /proc/PID.
func procLines(t *testing.T, read func(string) ([]byte, error), pattern, field string) (values []string) {
	t.Helper()
	all, err := read(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			values = append(values, strings.TrimSpace(value))
		}
	}
	if len(values) == 0 {
		t.Fatalf("no %s in %s", field, pattern)
	}
	return values
}

// TestCores: all threads of a node run where it was told, and processors that do
// not exist are refused by both programs with those that do.
func TestCores(t *testing.T) {
	t.Parallel()
	n := startNode(t, filepath.Join(t.TempDir(), "d"), "--cores", "0")
	for _, cpus := range procLines(t, n.ReadProc, "task/*/status", "Cpus_allowed_list") {
		if cpus != "0" {
			t.Errorf("a thread may run on %s, want 0", cpus)
		}
	}
	r := runProgram(t, nil, nil, "kvserver", serverArgs(filepath.Join(t.TempDir(), "d"), "--cores", "0,1023")...)
	checkRefused(t, r, 1, "cores", "1023", "it may use 0")
	checkRefused(t, runProgram(t, nil, []string{"RDMAKV_CORES=1023"}, "kvclient", "ping"), 1, "cores", "1023", "it may use 0")
}

// TestPrefault: with it a node has the pages of its regions before it uses them,
// from the node that it was told; a node that does not exist is refused.
func TestPrefault(t *testing.T) {
	t.Parallel()
	resident := func(more ...string) (kib int) {
		// A device pins what is registered with it, so there every page is taken anyway.
		args := append([]string{"--fabric", "iwarp", "--index-region-size", "32MiB"}, more...)
		n := startNode(t, filepath.Join(t.TempDir(), "d"), args...)
		kib, err := strconv.Atoi(strings.Fields(procLines(t, n.ReadProc, "status", "VmRSS")[0])[0])
		if err != nil {
			t.Fatal(err)
		}
		return kib
	}
	without, with := resident(), resident("--prefault", "--numa-node", "0")
	if with < without+(24<<10) {
		t.Errorf("%d KiB are resident with prefault, %d without: the region of 32 MiB was not taken", with, without)
	}
	r := runProgram(t, nil, nil, "kvserver", serverArgs(filepath.Join(t.TempDir(), "d"), "--numa-node", "1000")...)
	checkRefused(t, r, 1, "numa_node", "no such NUMA node", "there is 0")
}
