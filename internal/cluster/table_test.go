package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestTableCheck(t *testing.T) {
	for name, spoil := range map[string]func(*Table){
		"version 0":   func(t *Table) { t.Version = 0 },
		"node":        func(t *Table) { t.Node = "NODE" },
		"order":       func(t *Table) { t.Regions[0].ID = 50 },
		"state":       func(t *Table) { t.Regions[0].State = 3 },
		"empty":       func(t *Table) { t.Regions[0].Length = 0 },
		"overflow":    func(t *Table) { t.Regions[0].Base = ^uint64(0) },
		"device":      func(t *Table) { t.Regions[0].Keys[1].Device = 2 },
		"key order":   func(t *Table) { t.Regions[0].Keys[1].Device = 0 },
		"device name": func(t *Table) { t.Devices[0] = "a b" },
		"devices":     func(t *Table) { t.Devices = make([]string, 9) },
		"regions":     func(t *Table) { t.Regions = make([]Region, MaxRegions+1) },
	} {
		table := sampleTable()
		spoil(table)
		if err := table.Check(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGossipedTableIsBounded: the largest table that is gossiped is read, and has no
// more bytes than MaxTable; one of a region more is not.
func TestGossipedTableIsBounded(t *testing.T) {
	table := &Table{Node: strings.Repeat("n", MaxName), Incarnation: 1, Version: 1}
	for i := range MaxDevices {
		table.Devices = append(table.Devices, strings.Repeat("d", MaxName-1)+fmt.Sprint(i))
	}
	for id := range uint32(MaxGossip + 1) {
		r := Region{ID: id, Kind: 2, State: Serving, Base: uint64(id) << 20, Length: 1 << 20}
		for d := range uint8(MaxDevices) {
			r.Keys = append(r.Keys, RemoteKey{Device: d, RKey: id, Addr: r.Base})
		}
		table.Regions = append(table.Regions, r)
	}
	if err := table.Check(); err != nil {
		t.Errorf("a node may have more regions than it gossips: %v", err)
	}
	if _, err := ParseTable(AppendTable(nil, table)); !errors.Is(err, ErrMalformed) {
		t.Errorf("%d regions are read: %v", len(table.Regions), err)
	}
	table.Regions = table.Regions[:MaxGossip]
	b := AppendTable(nil, table)
	if len(b) > MaxTable {
		t.Errorf("%d bytes, at most %d", len(b), MaxTable)
	}
	if again, err := ParseTable(b); err != nil || again.Digest() != table.Digest() {
		t.Errorf("%d regions: %v", len(table.Regions), err)
	}
}
