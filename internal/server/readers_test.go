package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestNothingBeforeTheReadersAreGone: as long as somebody may believe memory of the
// incarnation before, the next one tells nothing to anybody: no session, and no
// backup either.
func TestNothingBeforeTheReadersAreGone(t *testing.T) {
	cfg := testConfig()
	cfg.DataDir, cfg.FS = t.TempDir(), nil
	cfg.Lease, cfg.Beat = time.Second, 100*time.Millisecond
	first, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Start(context.Background()), first.Shutdown(context.Background())); err != nil {
		t.Fatal(err)
	}
	held, err := ReaderProof(cfg.DataDir)()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	begun, started := time.Now(), make(chan error, 1)
	go func() { started <- srv.Start(context.Background()) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case err := <-started:
			if err != nil {
				t.Fatal(err)
			}
			waiting = false
		case <-tick.C:
			if _, err := os.Lstat(filepath.Join(cfg.DataDir, "control.sock")); err == nil && time.Since(begun) < cfg.Lease {
				t.Error("backups are made while readers of the last incarnation may be there")
				tick.Stop()
			}
		}
	}
	if took := time.Since(begun); took < cfg.Lease {
		t.Errorf("served after %v, with a lease of %v", took, cfg.Lease)
	}
	if _, err := os.Lstat(filepath.Join(cfg.DataDir, "control.sock")); err != nil {
		t.Error(err)
	}
	if err := srv.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
