package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/region"
)

// makeStore makes a stopped store with some keys and returns its directory.
func makeStore(t *testing.T, keys ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	s, err := store.Open(t.Context(), store.Config{
		Dir: dir, Shards: 4, Memory: new(region.HeapMemory), MemoryLimit: 32 << 20, RegionSize: 4 << 20, IndexRegionSize: 4 << 20,
		PredecessorGone: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range keys {
		if _, err := s.Put(t.Context(), uint16(i%4), []byte(k), []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRun(t *testing.T) {
	dir := makeStore(t, "plain", "line\nbreak", "\xff", `"quoted"`)
	var out bytes.Buffer
	if err := Run(t.Context(), &out, dir, Options{Keys: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"5 B  plain\n", `5 B  "line\nbreak"` + "\n", `5 B  "\xff"` + "\n", `5 B  "\"quoted\""` + "\n",
		"shards     4", "ended cleanly", "keys       4", "problems   0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := Run(t.Context(), &out, dir, Options{Keys: true, Hex: true, Prefix: []byte("pl")}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "  706c61696e\n") || strings.Contains(out.String(), "  ff\n") {
		t.Errorf("with a prefix, in hexadecimal:\n%s", out.String())
	}
}

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := Run(t.Context(), &out, makeStore(t, "a", "b"), Options{Keys: true, JSON: true}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last struct {
		Keys      int  `json:"keys"`
		CleanStop bool `json:"clean_stop"`
	}
	for _, l := range lines {
		if err := json.Unmarshal([]byte(l), &last); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
	}
	if len(lines) != 3 || last.Keys != 2 || !last.CleanStop {
		t.Errorf("%d lines, the last says %+v", len(lines), last)
	}
}

// TestDamage: damage is an error of its own, after the report.
func TestDamage(t *testing.T) {
	dir := makeStore(t, "a", "b", "c")
	logs, err := filepath.Glob(filepath.Join(dir, "data", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	data, err := os.ReadFile(logs[len(logs)-1])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(logs[len(logs)-1], data, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = Run(t.Context(), &out, dir, Options{})
	if !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("error %v, want %v", err, store.ErrCorrupt)
	}
	if err := Run(t.Context(), &out, t.TempDir()+"/none", Options{}); !errors.Is(err, store.ErrNoStore) {
		t.Errorf("no store: %v", err)
	}
}

// TestClosedOutput: output that cannot be written is an error.
func TestClosedOutput(t *testing.T) {
	if err := Run(t.Context(), failing{}, makeStore(t, "a"), Options{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }
