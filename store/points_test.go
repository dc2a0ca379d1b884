//go:build points

package store

import (
	"testing"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// hook makes f run at the points of points.patch for the length of a test.
func hook(t *testing.T, f func(point string, args ...uint64)) {
	t.Helper()
	if !teeth.Points {
		t.Fatal("this build passes no points: go run ./internal/teeth/mutants -with points -- test ./store")
	}
	teeth.SetHook(f)
	t.Cleanup(func() { teeth.SetHook(nil) })
}
