package ibv

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sysfsRoot is where the kernel shows RDMA devices.
const sysfsRoot = "/sys/class/infiniband"

// sysfsGIDs reads the GID table of a port as the kernel shows it below
// DEV/ports/N: gids/I holds eight groups of four hexadecimal digits,
// gid_attrs/types/I "IB/RoCE v1" or "RoCE v2", gid_attrs/ndevs/I an interface
// (Documentation/ABI/stable/sysfs-class-infiniband of Linux). Reading the
// attributes of an unused entry fails.
func sysfsGIDs(root, dev string, port uint8, link LinkLayer) ([]GIDEntry, error) {
	dir := filepath.Join(root, dev, "ports", strconv.Itoa(int(port)))
	files, err := os.ReadDir(filepath.Join(dir, "gids"))
	if err != nil {
		return nil, fmt.Errorf("ibv: GID table: %w", err)
	}
	var table []GIDEntry
	for index := range files {
		name := strconv.Itoa(index)
		text, err := readLine(filepath.Join(dir, "gids", name))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("ibv: GID table: %w", err)
		}
		e := GIDEntry{Port: port, Index: index}
		raw, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
		if err != nil || len(raw) != len(e.GID) {
			return nil, fmt.Errorf("ibv: GID table: entry %d of %s is %q, no GID", index, dev, text)
		}
		e.GID = GID(raw)
		if e.GID == (GID{}) {
			continue
		}
		kind, err := readLine(filepath.Join(dir, "gid_attrs", "types", name))
		switch {
		case err == nil && kind == "RoCE v2":
			e.Type = GIDRoCEv2
		case link == LinkEthernet:
			e.Type = GIDRoCEv1
		}
		// InfiniBand has none.
		e.NetDev, _ = readLine(filepath.Join(dir, "gid_attrs", "ndevs", name))
		table = append(table, e)
	}
	return table, nil
}

// readLine reads a file of sysfs.
func readLine(name string) (string, error) {
	data, err := os.ReadFile(name)
	return strings.TrimSpace(string(data)), err
}

// GIDsBelow reads the GID table of a port as the kernel shows it in dir, which
// is /sys/class/infiniband or a copy of it, without opening the device: for
// looking at a machine whose devices cannot be opened.
func GIDsBelow(dir, dev string, port uint8, link LinkLayer) ([]GIDEntry, error) {
	return sysfsGIDs(dir, dev, port, link)
}
