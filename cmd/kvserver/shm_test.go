package main

import (
	"log/slog"
	"testing"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/rdma/shm"
)

// TestShmKeysArrive: what the configuration says of shared memory is what the
// fabric is given.
func TestShmKeysArrive(t *testing.T) {
	of := func(env ...string) config.Config { return loaded(t, env...).Config }
	base := shmOptions(of())
	if base.Dir != "" || base.Trust == shm.Trusted || base.Proof == nil {
		t.Errorf("by default: %+v", base)
	}
	if o := shmOptions(of("RDMAKV_SHM_DIR=/r")); o.Dir != "/r" {
		t.Errorf("shm_dir became %q", o.Dir)
	}
	if o := shmOptions(of("RDMAKV_SHM=trusted")); o.Trust != shm.Trusted {
		t.Errorf("shm: trusted became %v", o.Trust)
	}
	if o := shmOptions(of("RDMAKV_MODE=cache")); o.Proof != nil {
		t.Error("a cache has no directory for the proof")
	}
	log := slog.New(slog.DiscardHandler)
	if f := newFabrics(of(), log); f.shm == nil {
		t.Error("there is no shm by default")
	}
	if f := newFabrics(of("RDMAKV_SHM=off"), log); f.shm != nil {
		t.Error("shm: off leaves the fabric")
	}
}
