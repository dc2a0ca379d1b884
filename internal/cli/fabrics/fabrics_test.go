package fabrics

import (
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/config"
)

// TestFabrics: which fabrics the library is given, in which order.
func TestFabrics(t *testing.T) {
	for env, want := range map[string]string{
		"":                            "shm verbs iwarp",
		"RDMAKV_FABRIC=auto":          "shm verbs iwarp",
		"RDMAKV_FABRIC=shm":           "shm",
		"RDMAKV_SHM=off":              "verbs iwarp",
		"RDMAKV_FABRIC=verbs":         "verbs",
		"RDMAKV_FABRIC=iwarp":         "iwarp",
		"RDMAKV_REQUIRE_RDMA=true":    "verbs",
		"RDMAKV_VERBS_CONNECT=tcp":    "shm verbs iwarp",
		"RDMAKV_DEVICE=mlx5_0,iwarp0": "shm verbs iwarp",
	} {
		var got []string
		l, err := config.Load(config.Options{Scope: config.ForClient, Search: []string{}, Env: strings.Fields(env)})
		if err != nil {
			t.Fatal(err)
		}
		list, err := ForClient(l.Config, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			got = append(got, f.Name())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %v", env, got, want)
		}
	}
}
