package cluster

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Bounds of a table.
const (
	MaxRegions = 1 << 14 // of one node
	MaxGossip  = 512     // regions of a table that is gossiped; a node with more gossips none
	MaxDevices = 8       // with which one node registers its regions
)

// A RegionState says what a reader may expect of a region.
type RegionState uint8

const (
	Serving RegionState = 1
	Retired RegionState = 2 // goes away a lease from now: begin no new READ there
)

func (s RegionState) String() string {
	switch s {
	case Serving:
		return "serving"
	case Retired:
		return "retired"
	}
	return "unknown"
}

// A Region is a piece of a node's memory that others may READ.
type Region struct {
	ID           uint32
	Kind         uint8 // of store/layout: index or items
	State        RegionState
	Base, Length uint64      // where it lies in the node's space of places, bytes
	Keys         []RemoteKey // by Device, strictly rising
}

// A RemoteKey is the address and the rkey under which one device serves a region.
type RemoteKey struct {
	Device uint8 // index in Table.Devices
	RKey   uint32
	Addr   uint64
}

// A Table is all regions that a node publishes. It is a hint, for tools, for other
// servers and for early warning; what a client READs comes from its own session, in
// wire.ViewReply. It is immutable once it is published.
type Table struct {
	Node        string
	Incarnation uint64 // of the node's store; not ordered
	Version     uint64 // rises within an incarnation, from 1
	Devices     []string
	Regions     []Region // by ID, strictly rising
}

// Check holds a table to its bounds. ErrMalformed.
func (t *Table) Check() error {
	if err := CheckNodeID(t.Node); err != nil {
		return err
	}
	if t.Version == 0 {
		return malformed("a table of version 0")
	}
	return checkRegions(t.Devices, t.Regions)
}

// checkRegions holds devices and regions to the bounds of a table: their numbers,
// names, order and keys.
func checkRegions(devices []string, regions []Region) error {
	if len(regions) > MaxRegions || len(devices) > MaxDevices {
		return malformed("%d regions on %d devices, at most %d on %d", len(regions), len(devices), MaxRegions, MaxDevices)
	}
	for _, d := range devices {
		if !printable(d, MaxName) {
			return malformed("a device is called %q", clip(d))
		}
	}
	for i := range regions {
		r := &regions[i]
		switch {
		case i > 0 && regions[i-1].ID >= r.ID:
			return malformed("region %d stands behind region %d", r.ID, regions[i-1].ID)
		case r.State != Serving && r.State != Retired:
			return malformed("region %d is in state %d", r.ID, r.State)
		case r.Length == 0 || r.Base+r.Length < r.Base:
			return malformed("region %d has %d bytes at %d", r.ID, r.Length, r.Base)
		}
		for k, key := range r.Keys {
			if int(key.Device) >= len(devices) || k > 0 && r.Keys[k-1].Device >= key.Device {
				return malformed("region %d has a key for device %d of %d", r.ID, key.Device, len(devices))
			}
		}
	}
	return nil
}

// Equal reports whether two regions are the same in every field.
func (r *Region) Equal(o *Region) bool {
	return r.ID == o.ID && r.Kind == o.Kind && r.State == o.State &&
		r.Base == o.Base && r.Length == o.Length && slices.Equal(r.Keys, o.Keys)
}

// Region returns the region with this id, nil if there is none.
func (t *Table) Region(id uint32) *Region {
	i, ok := slices.BinarySearchFunc(t.Regions, id, func(r Region, id uint32) int { return cmp.Compare(r.ID, id) })
	if !ok {
		return nil
	}
	return &t.Regions[i]
}

// Digest returns the xxhash64 of the table's encoding. It tells two tables apart
// that should be the same. It does not stop a forger, and need not: whoever can
// forge a table can forge the digest beside it.
func (t *Table) Digest() uint64 {
	return xxhash.Sum64(AppendTable(make([]byte, 0, t.size()), t))
}

// size is about how many bytes AppendTable writes, never less.
func (t *Table) size() int {
	n := tableFixed + (1+len(t.Devices))*(1+MaxName)
	for i := range t.Regions {
		n += regionSize(&t.Regions[i])
	}
	return n
}

const (
	tableFormat = 1
	tableFixed  = 1 + 1 + 2 + 4 + 8 + 8
	regionFixed = 4 + 1 + 1 + 1 + 1 + 8 + 8
	keySize     = 1 + 4 + 8
)

// MaxTable bounds the bytes of an encoded table that is gossiped: 65 KiB. With one
// device it is 19 KiB.
const MaxTable = tableFixed + (1+MaxDevices)*(1+MaxName) + MaxGossip*(regionFixed+MaxDevices*keySize)

// AppendTable appends a table:
//
//	┌format┬devices┬ 0 ┬regions┬incarnation┬version┬node┬per device: name┐
//	└1     ┴1      ┴2  ┴4      ┴8          ┴8      ┴1+n ┴1+n             ┘
//	per region: ┌id┬kind┬state┬keys┬ 0 ┬base┬length┬per key: device┬rkey┬address┐
//	            └4 ┴1   ┴1    ┴1   ┴1  ┴8   ┴8     ┴         1     ┴4   ┴8      ┘
//
// One key per region, as on a node with one device, makes 37 bytes. It panics
// if t.Check would fail on what decides the layout.
func AppendTable(dst []byte, t *Table) []byte {
	dst = append(dst, tableFormat, byte(len(t.Devices)), 0, 0)
	dst = le.AppendUint32(dst, uint32(len(t.Regions)))
	dst = le.AppendUint64(dst, t.Incarnation)
	dst = le.AppendUint64(dst, t.Version)
	dst = appendText(dst, t.Node)
	for _, d := range t.Devices {
		dst = appendText(dst, d)
	}
	for i := range t.Regions {
		dst = appendRegion(dst, &t.Regions[i])
	}
	return dst
}

func appendRegion(dst []byte, r *Region) []byte {
	dst = le.AppendUint32(dst, r.ID)
	dst = append(dst, r.Kind, byte(r.State), byte(len(r.Keys)), 0)
	dst = le.AppendUint64(dst, r.Base)
	dst = le.AppendUint64(dst, r.Length)
	for _, k := range r.Keys {
		dst = append(dst, k.Device)
		dst = le.AppendUint32(dst, k.RKey)
		dst = le.AppendUint64(dst, k.Addr)
	}
	return dst
}

// regionSize is how many bytes appendRegion writes.
func regionSize(r *Region) int { return regionFixed + len(r.Keys)*keySize }

// devices and regions read the lists of a table.
func (f *fields) devices(count int) []string {
	if count > MaxDevices {
		f.fail(malformed("%d devices, at most %d", count, MaxDevices))
	}
	var out []string
	for i := 0; i < count && f.err == nil; i++ {
		out = append(out, f.text())
	}
	return out
}

func (f *fields) regions(count int) []Region {
	if !f.room(count, regionFixed) || count == 0 {
		return nil
	}
	out := make([]Region, 0, count)
	keys := make([]RemoteKey, 0, count) // one array for all, as a rule
	for i := 0; i < count && f.err == nil; i++ {
		r := Region{ID: f.u32(), Kind: f.u8(), State: RegionState(f.u8())}
		n := int(f.u8())
		f.zero(1)
		r.Base, r.Length = f.u64(), f.u64()
		if n > MaxDevices || !f.room(n, keySize) {
			f.fail(malformed("region %d has %d keys", r.ID, n))
			break
		}
		at := len(keys)
		for range n {
			keys = append(keys, RemoteKey{Device: f.u8(), RKey: f.u32(), Addr: f.u64()})
		}
		if n > 0 {
			r.Keys = keys[at:len(keys):len(keys)]
		}
		out = append(out, r)
	}
	return out
}

// ParseTable reads what AppendTable wrote, of a table of at most MaxGossip regions.
// ErrMalformed.
func ParseTable(b []byte) (*Table, error) {
	f := fields{b: b}
	f.format("a table", tableFormat)
	devices := int(f.u8())
	f.zero(2)
	regions := f.u32()
	t := &Table{Incarnation: f.u64(), Version: f.u64(), Node: f.text()}
	t.Devices = f.devices(devices)
	if regions > MaxGossip {
		f.fail(malformed("%d regions, at most %d are gossiped", regions, MaxGossip))
	}
	t.Regions = f.regions(int(regions))
	if err := f.done(); err != nil {
		return nil, err
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	return t, nil
}
