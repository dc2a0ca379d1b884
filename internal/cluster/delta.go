package cluster

import (
	"cmp"
	"errors"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// A Delta is what changed in a node's table, small enough to be gossiped. It
// leads from every version in [From, To) to To: it holds, in full, each region
// that changed since From, and the ids of those that went. So it does not
// matter how many deltas a receiver missed in between, in which order they
// come or how often.
//
// From 0 stands for the empty table: such a delta leads from anything to To.
// From == To is a notice without content: version To exists, ask for it.
type Delta struct {
	Node        string
	Incarnation uint64
	From, To    uint64
	Digest      uint64 // of the table of version To
	Devices     []string
	Changed     []Region // by ID, strictly rising
	Removed     []uint32 // ids, strictly rising
}

// ErrGap: a delta does not lead on from this table. Ask for the whole one.
var ErrGap = errors.New("cluster: the delta does not fit onto this table")

// Diff returns the delta that leads from the older table to this one, of the
// same node and incarnation. nil stands for nothing known before.
func (t *Table) Diff(from *Table) *Delta {
	d := &Delta{Node: t.Node, Incarnation: t.Incarnation, To: t.Version, Digest: t.Digest(), Devices: t.Devices}
	if from == nil || from.Incarnation != t.Incarnation {
		d.Changed = t.Regions
		return d
	}
	d.From = from.Version
	for i := range t.Regions {
		if old := from.Region(t.Regions[i].ID); old == nil || !old.Equal(&t.Regions[i]) {
			d.Changed = append(d.Changed, t.Regions[i])
		}
	}
	for i := range from.Regions {
		if id := from.Regions[i].ID; t.Region(id) == nil {
			d.Removed = append(d.Removed, id)
		}
	}
	return d
}

// Apply returns the table to which d leads from t (nil: nothing known); t
// itself if it is as new already. ErrGap if d does not fit onto t, or if what
// comes out has not the digest that d names: then only the whole table helps.
func (t *Table) Apply(d *Delta) (*Table, error) {
	if t != nil && t.Node == d.Node && t.Incarnation == d.Incarnation && t.Version >= d.To {
		return t, nil
	}
	next := &Table{Node: d.Node, Incarnation: d.Incarnation, Version: d.To, Devices: d.Devices}
	switch {
	case d.From == d.To:
		return nil, ErrGap
	case d.From == 0:
		next.Regions = d.Changed
	case t == nil || t.Node != d.Node || t.Incarnation != d.Incarnation || t.Version < d.From:
		return nil, ErrGap
	default:
		next.Regions = merge(t.Regions, d.Changed, d.Removed)
	}
	if next.Check() != nil || next.Digest() != d.Digest {
		return nil, ErrGap
	}
	return next, nil
}

// merge puts the changed regions over the old ones and takes the removed out.
func merge(old, changed []Region, removed []uint32) []Region {
	out := make([]Region, 0, len(old)+len(changed))
	for len(old) > 0 || len(changed) > 0 {
		switch {
		case len(changed) == 0 || len(old) > 0 && old[0].ID < changed[0].ID:
			if _, gone := slices.BinarySearch(removed, old[0].ID); !gone {
				out = append(out, old[0])
			}
			old = old[1:]
		case len(old) > 0 && old[0].ID == changed[0].ID:
			old = old[1:]
		default:
			out = append(out, changed[0])
			changed = changed[1:]
		}
	}
	return out
}

const (
	deltaFormat = 1
	deltaFixed  = 1 + 1 + 2 + 4 + 8*4
)

// AppendDelta appends a delta:
//
//	┌format┬devices┬changed┬removed┬incarnation┬from┬to┬digest┬node┬per device: name┐
//	└1     ┴1      ┴2      ┴4      ┴8          ┴8   ┴8 ┴8     ┴1+n ┴1+n             ┘
//	the changed regions as in AppendTable, per removed: ┌id┐
//	                                                    └4 ┘
//
// It panics if d breaks a bound that decides the layout.
func AppendDelta(dst []byte, d *Delta) []byte {
	dst = append(dst, deltaFormat, byte(len(d.Devices)))
	dst = le.AppendUint16(dst, uint16(len(d.Changed)))
	dst = le.AppendUint32(dst, uint32(len(d.Removed)))
	dst = le.AppendUint64(dst, d.Incarnation)
	dst = le.AppendUint64(dst, d.From)
	dst = le.AppendUint64(dst, d.To)
	dst = le.AppendUint64(dst, d.Digest)
	dst = appendText(dst, d.Node)
	for _, name := range d.Devices {
		dst = appendText(dst, name)
	}
	for i := range d.Changed {
		dst = appendRegion(dst, &d.Changed[i])
	}
	for _, id := range d.Removed {
		dst = le.AppendUint32(dst, id)
	}
	return dst
}

// ParseDelta reads what AppendDelta wrote. ErrMalformed.
func ParseDelta(b []byte) (*Delta, error) {
	f := fields{b: b}
	f.format("a delta", deltaFormat)
	devices, changed, removed := int(f.u8()), int(f.u16()), f.u32()
	d := &Delta{Incarnation: f.u64(), From: f.u64(), To: f.u64(), Digest: f.u64(), Node: f.text()}
	d.Devices = f.devices(devices)
	d.Changed = f.regions(changed)
	if removed > 2*MaxRegions {
		f.fail(malformed("%d regions removed", removed))
	} else if f.room(int(removed), 4) && removed > 0 {
		d.Removed = make([]uint32, removed)
		for i := range d.Removed {
			d.Removed[i] = f.u32()
		}
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Delta) check() error {
	if err := CheckNodeID(d.Node); err != nil {
		return err
	}
	switch {
	case d.To == 0 || d.From > d.To:
		return malformed("a delta from version %d to %d", d.From, d.To)
	case (d.From == 0 || d.From == d.To) && len(d.Removed) > 0 || d.From == d.To && len(d.Changed) > 0:
		return malformed("a delta from version %d to %d with %d regions changed and %d removed", d.From, d.To, len(d.Changed), len(d.Removed))
	}
	for i, id := range d.Removed {
		if i > 0 && d.Removed[i-1] >= id {
			return malformed("removed region %d stands behind %d", id, d.Removed[i-1])
		}
	}
	return checkRegions(d.Devices, d.Changed)
}

// A History remembers what changed when in one node's own table, so that each
// advert can reach back as far as fits into it. Not safe for concurrent use.
type History struct {
	last    *Table
	digest  uint64
	first   uint64            // deltas reach back to versions >= first
	changes map[uint32]uint64 // region id -> version that changed or removed it last
}

// Add notes the next table: of the same node, and either of a higher version
// or of another incarnation.
func (h *History) Add(t *Table) {
	d := t.Diff(h.last)
	if d.From == 0 {
		h.changes = make(map[uint32]uint64, len(t.Regions))
		h.first = 0
	}
	for i := range d.Changed {
		h.changes[d.Changed[i].ID] = t.Version
	}
	for _, id := range d.Removed {
		h.changes[id] = t.Version
	}
	h.last, h.digest = t, d.Digest
	h.forget()
}

// forget bounds the memory of regions that are gone: beyond as many as a
// table may have, those that went first are forgotten, and deltas reach back
// no further than that.
func (h *History) forget() {
	if len(h.changes) <= 2*MaxRegions {
		return
	}
	versions := make([]uint64, 0, len(h.changes))
	for id, v := range h.changes {
		if h.last.Region(id) == nil {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	h.first = max(h.first, versions[len(versions)/2])
	for id, v := range h.changes {
		if v <= h.first && h.last.Region(id) == nil {
			delete(h.changes, id)
		}
	}
}

// Last returns the table that was added last, nil before the first, and its
// digest.
func (h *History) Last() (*Table, uint64) { return h.last, h.digest }

// Delta returns the delta to the last table that reaches back furthest within
// limit encoded bytes; a notice if not even the last change fits. There must
// have been an Add.
func (h *History) Delta(limit int) *Delta {
	t := h.last
	d := &Delta{Node: t.Node, Incarnation: t.Incarnation, To: t.Version, Digest: h.digest, Devices: t.Devices}
	room := limit - deltaFixed - 1 - len(d.Node)
	for _, name := range d.Devices {
		room -= 1 + len(name)
	}
	// The whole table, if it fits: then what went does not matter.
	whole := 0
	for i := range t.Regions {
		if whole += regionSize(&t.Regions[i]); whole > room {
			break
		}
	}
	if whole <= room {
		d.Changed = t.Regions
		return d
	}
	// Else whole versions, from the newest back.
	bytes := map[uint64]int{} // version -> bytes that its changes take
	for id, v := range h.changes {
		if r := t.Region(id); r != nil {
			bytes[v] += regionSize(r)
		} else {
			bytes[v] += 4
		}
	}
	versions := make([]uint64, 0, len(bytes))
	for v := range bytes {
		versions = append(versions, v)
	}
	slices.Sort(versions)
	d.From = d.To
	// A delta from version v holds what changed in versions above v. Without
	// changes in between, it may as well begin at the next lower one with any.
	for i := len(versions) - 1; i >= 0 && versions[i] > h.first; i-- {
		if room -= bytes[versions[i]]; room < 0 {
			break
		}
		d.From = max(h.first, 1)
		if i > 0 {
			d.From = max(d.From, versions[i-1])
		}
	}
	if d.From == d.To {
		d.Devices = nil
		return d
	}
	for id, v := range h.changes {
		if v <= d.From {
			continue
		}
		if r := t.Region(id); r != nil {
			d.Changed = append(d.Changed, *r)
		} else {
			d.Removed = append(d.Removed, id)
		}
	}
	slices.SortFunc(d.Changed, func(a, b Region) int { return cmp.Compare(a.ID, b.ID) })
	slices.Sort(d.Removed)
	return d
}

// Hash is the xxhash64 of a node id: its short name where a text is too long.
func Hash(id string) uint64 { return xxhash.Sum64String(id) }
