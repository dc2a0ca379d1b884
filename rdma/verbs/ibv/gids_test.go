package ibv

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sysfsTree makes the files of one port.
func sysfsTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, "mlx5_0", "ports", "1", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func gid(s string) GID { return netip.MustParseAddr(s).As16() }

// TestSysfsGIDs: what a libibverbs before rdma-core 32 makes us read.
func TestSysfsGIDs(t *testing.T) {
	root := sysfsTree(t, map[string]string{
		"gids/0":            "fe80:0000:0000:0000:0000:00ff:fe00:0001",
		"gid_attrs/types/0": "IB/RoCE v1", "gid_attrs/ndevs/0": "eth0",
		"gids/1":            "0000:0000:0000:0000:0000:0000:0000:0000",
		"gids/2":            "0000:0000:0000:0000:0000:ffff:0a4d:0001",
		"gid_attrs/types/2": "RoCE v2", "gid_attrs/ndevs/2": "eth0.7",
		"gids/10":            "fd00:0077:0000:0000:0000:0000:0000:0001",
		"gid_attrs/types/10": "RoCE v2", "gid_attrs/ndevs/10": "eth1",
		"gids/3": strings.Repeat("0000:", 7) + "0000", "gids/4": strings.Repeat("0000:", 7) + "0000",
		"gids/5": strings.Repeat("0000:", 7) + "0000", "gids/6": strings.Repeat("0000:", 7) + "0000",
		"gids/7": strings.Repeat("0000:", 7) + "0000", "gids/8": strings.Repeat("0000:", 7) + "0000",
		"gids/9": strings.Repeat("0000:", 7) + "0000",
	})
	want := []GIDEntry{
		{GID: gid("fe80::ff:fe00:1"), Port: 1, Index: 0, Type: GIDRoCEv1, NetDev: "eth0"},
		{GID: gid("::ffff:10.77.0.1"), Port: 1, Index: 2, Type: GIDRoCEv2, NetDev: "eth0.7"},
		{GID: gid("fd00:77::1"), Port: 1, Index: 10, Type: GIDRoCEv2, NetDev: "eth1"},
	}
	got, err := sysfsGIDs(root, "mlx5_0", 1, LinkEthernet)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	got, err = sysfsGIDs(root, "mlx5_0", 1, LinkInfiniBand)
	if err != nil || len(got) != 3 || got[0].Type != GIDIB {
		t.Errorf("on InfiniBand: %v, %v", got, err)
	}
}

func TestSysfsGIDErrors(t *testing.T) {
	if _, err := sysfsGIDs(t.TempDir(), "mlx5_0", 1, LinkEthernet); err == nil {
		t.Error("no directory, and no error")
	}
	for _, text := range []string{"", "fe80", "xx80:0000:0000:0000:0000:00ff:fe00:0001", strings.Repeat("fe80:", 16) + "0"} {
		root := sysfsTree(t, map[string]string{"gids/0": text})
		if got, err := sysfsGIDs(root, "mlx5_0", 1, LinkEthernet); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
