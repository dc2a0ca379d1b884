package e2e

import (
	"path/filepath"
	"slices"
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
	n := startNode(t, filepath.Join(t.TempDir(), "d"), "--expert-cores", "0")
	for _, cpus := range procLines(t, n.ReadProc, "task/*/status", "Cpus_allowed_list") {
		if cpus != "0" {
			t.Errorf("a thread may run on %s, want 0", cpus)
		}
	}
	r := runProgram(t, nil, nil, "kvserver", serverArgs(filepath.Join(t.TempDir(), "d"), "--expert-cores", "0,1023")...)
	checkRefused(t, r, 1, "cores", "1023", "it may use 0")
	checkRefused(t, runProgram(t, nil, []string{"RDMAKV_EXPERT_CORES=1023"}, "kvclient", "ping"), 1, "cores", "1023", "it may use 0")
}

// registered returns the size and the resident part, in KiB, of the mappings of a
// process that are kept from its children (VmFlags "dc"), as regions are and the
// heap, stacks and the program's own pages are not. The resident size of the whole
// process says nothing here: how much of a program of 28 MiB is mapped changes
// from start to start.
func registered(t *testing.T, smaps []byte) (size, resident int) {
	t.Helper()
	var sizeOf, residentOf int
	for line := range strings.Lines(string(smaps)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		var into *int
		switch name {
		case "Size":
			into = &sizeOf
		case "Rss":
			into = &residentOf
		case "VmFlags": // the last line of a mapping
			if slices.Contains(fields, "dc") {
				size, resident = size+sizeOf, resident+residentOf
			}
			continue
		default:
			continue
		}
		kib, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatalf("smaps: %q: %v", line, err)
		}
		*into = kib
	}
	return size, resident
}

// TestPrefault: with it a node has the pages of its regions before it uses them.
func TestPrefault(t *testing.T) {
	t.Parallel()
	start := func(more ...string) (size, resident int) {
		// A device pins what is registered with it, so there every page is taken anyway.
		args := append([]string{"--fabric", "iwarp", "--expert-index-region-size", "32MiB"}, more...)
		n := startNode(t, filepath.Join(t.TempDir(), "d"), args...)
		smaps, err := n.ReadProc("smaps")
		if err != nil {
			t.Fatal(err)
		}
		size, resident = registered(t, smaps)
		if size < 32<<10 {
			t.Fatalf("with %q the regions of the node have %d KiB, want the 32 MiB of its index at least", more, size)
		}
		return size, resident
	}
	if size, resident := start(); resident > size/2 {
		t.Errorf("%d KiB of %d are resident without prefault: this test cannot see what prefault does", resident, size)
	}
	if size, resident := start("--expert-prefault=on"); resident < size {
		t.Errorf("%d KiB of %d are resident with prefault, want all", resident, size)
	}
}
