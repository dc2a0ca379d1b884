package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestEmptyTenantsFile: a file without tenants makes no public server.
func TestEmptyTenantsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenants")
	if err := os.WriteFile(path, []byte("tenants: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, env := range [][]string{{"RDMAKV_TENANTS_FILE=" + path}, nil} {
		a := &app{fabrics: newFabrics, cfg: loaded(t, env...), stderr: new(bytes.Buffer)}
		cfg, err := a.serverConfig(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Private != (env != nil) {
			t.Errorf("%q: private is %v", env, cfg.Private)
		}
	}
}
