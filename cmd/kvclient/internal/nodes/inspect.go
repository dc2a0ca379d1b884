package nodes

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/store/layout"
)

// inspectCmd is inspect. It shows what a remote reader sees, word for word, so that
// a user can distinguish a fault of the layout from one of the client that reads it.
func inspectCmd(a *app.App) *cobra.Command {
	var region int64
	var limit int
	var node string
	cmd := &cobra.Command{
		Use:   "inspect [KEY]",
		Short: "look at a live server's memory by RDMA READ",
		Long: `inspect reads the memory of a live server one-sidedly and shows what stands
there: with no argument the regions, their headers and the beat; with KEY the
way from the root of the index to the item; with --region the buckets of an
index region, their slots, and the items that the slots name. In a cluster KEY is
looked for at the node that owns it, everything else needs --node.

It shows words as they are at that moment. A line may be out of date when it is
printed; nothing of it carries the promises of a get.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			// KEY and --region are two ways into the same memory.
			var key []byte
			switch {
			case limit < 1:
				return cli.Usagef("--limit is %d, want 1 or more", limit)
			case len(args) == 1 && cmd.Flags().Changed("region"):
				return cli.Usagef("both KEY and --region are given")
			case len(args) == 1:
				var err error
				if key, err = a.Key(args[0]); err != nil {
					return err
				}
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				in, err := newInspector(cmd.Context(), a, c, node, key)
				switch {
				case err != nil:
					return err
				case key != nil:
					return in.showKey(key)
				case cmd.Flags().Changed("region"):
					return in.showRegion(region, limit)
				}
				return in.showRegions()
			})
		},
	}
	cmd.Flags().Int64Var(&region, "region", 0, "show the buckets of this region")
	nodeFlag(cmd, &node)
	cmd.Flags().IntVar(&limit, "limit", 20, "buckets to show at most; empty ones do not count")
	return cmd
}

// An inspector looks at the memory of one server, for one command. view is the
// table of regions as it was when the command began, and is not asked for again. A
// region that goes meanwhile makes READs fail, and the user sees that.
type inspector struct {
	*app.App
	ctx  context.Context
	c    *admin.Node
	view *layout.View
}

// newInspector finds the server to look at and asks it for its regions.
func newInspector(ctx context.Context, a *app.App, c *client.Client, node string, key []byte) (*inspector, error) {
	n, err := inspected(c, node, key)
	if err != nil {
		return nil, err
	}
	view, err := n.View(ctx)
	if err != nil {
		return nil, err
	}
	// The server shows such a tenant no region at all.
	if len(view.Regions) == 0 {
		return nil, fmt.Errorf("%w: this tenant has no one-sided access, so there is no memory to look at", client.ErrUnsupported)
	}
	return &inspector{App: a, ctx: ctx, c: n, view: view}, nil
}

// inspected is the server to look at: the one that is named, the owner of the key,
// or the only one there is. Memory belongs to one node, so in a cluster one must be
// meant.
func inspected(c *client.Client, node string, key []byte) (*admin.Node, error) {
	if node != "" {
		return admin.Of(c).Node(node)
	}
	if key != nil {
		return admin.Of(c).NodeOf(key)
	}
	nodes := admin.Of(c).Nodes()
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	var ids []string
	for _, n := range nodes {
		ids = append(ids, n.ID())
	}
	return nil, cli.Usagef("each node of a cluster has its own memory: say --node, one of %q", ids)
}

// read READs n bytes, a multiple of 8, at a place. A place that lies in no region
// is an error and not a READ: the server's card would end the connection for it.
func (in *inspector) read(p layout.Place, n int) ([]byte, error) {
	i, off, ok := in.view.Locate(p, n)
	if !ok {
		return nil, fmt.Errorf("%d bytes at %v lie in no region", n, p)
	}
	buf := make([]byte, n)
	return buf, in.c.ReadRegion(in.ctx, in.view.Regions[i].ID, off, buf)
}

// word READs one word.
func (in *inspector) word(p layout.Place) (uint64, error) {
	b, err := in.read(p, 8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// These are the JSON form of inspect. Numbers of 64 bits that are no counts
// (incarnations, seeds, words, places) are texts, as layout writes them.
type (
	// A regionInfo is a region as the server tells of it, and whether its header
	// agrees.
	regionInfo struct {
		ID     uint32 `json:"id"`
		Kind   string `json:"kind"`
		Base   string `json:"base"`
		Length uint64 `json:"length"`
		Header string `json:"header"` // "ok", or what is wrong with it
	}
	// A viewInfo is the table of regions, by which a reader turns places into
	// addresses, and the beat, by which it knows that the server lives.
	viewInfo struct {
		Incarnation string       `json:"incarnation"`
		Version     uint64       `json:"view_version"`
		Shards      uint32       `json:"shards"`
		Seed        string       `json:"hash_seed"`
		Beat        beatInfo     `json:"beat"`
		Regions     []regionInfo `json:"regions"`
	}
	// A beatInfo is the beat as it stands there now. Fault is what a reader would
	// refuse it for; then the rest is zero.
	beatInfo struct {
		Counter uint64 `json:"counter"`
		Time    string `json:"time"`
		View    uint64 `json:"view_version"`
		Reclaim uint64 `json:"reclaim_version"`
		Fault   string `json:"fault,omitempty"`
	}
	// A bucketInfo is a bucket of the index: its header, and the slots that are in
	// use.
	bucketInfo struct {
		Place  string     `json:"place"`
		Header string     `json:"header"`
		Slots  []slotInfo `json:"slots"` // those that are not empty
	}
	// A slotInfo is one word of a bucket. Item is missing where the slot names none
	// in memory.
	slotInfo struct {
		Slot int       `json:"slot"`
		Word string    `json:"word"`
		Item *itemInfo `json:"item,omitempty"`
	}
	// An itemInfo is the item that a slot names, or what is wrong with it (Fault).
	// A reader may come between a write and the slot that names it, so a fault here
	// need not be one.
	itemInfo struct {
		State   string `json:"state,omitempty"`
		Version string `json:"version,omitempty"`
		Key     string `json:"key,omitempty"` // quoted where it is no plain text
		Size    int    `json:"size"`          // of the value
		Fault   string `json:"fault,omitempty"`
		raw     []byte // the key
	}
)

// showRegions shows the region table, each region's own header, and the beat.
func (in *inspector) showRegions() error {
	v := in.view
	info := viewInfo{
		Incarnation: fmt.Sprintf("%016x", v.Incarnation), Version: v.Version, Shards: v.Shards, Seed: fmt.Sprintf("%016x", v.Seed),
	}
	// The beat is checked as a client checks it: against the incarnation of the
	// session.
	raw, err := in.read(v.BeatPlace(), layout.BeatSize)
	if err != nil {
		return err
	}
	if b, err := layout.ParseBeat(raw, v.Incarnation); err != nil {
		info.Beat.Fault = err.Error()
	} else {
		info.Beat = beatInfo{b.Counter, time.UnixMicro(int64(b.TimeMicros)).UTC().Format(time.RFC3339Nano), b.ViewVersion, b.ReclaimVersion, ""}
	}
	for _, r := range v.Regions {
		// Each region repeats in its header what the server has said of it. A
		// reader that was given a wrong address finds out by that.
		header := "ok"
		raw, err := in.read(r.Base, layout.RegionHeaderSize)
		if err != nil {
			return err
		}
		if h, err := layout.ParseRegionHeader(raw); err != nil {
			header = err.Error()
		} else if h.Region != r || h.Incarnation != v.Incarnation {
			header = fmt.Sprintf("says something else than the view: %+v of incarnation %016x", h.Region, h.Incarnation)
		}
		info.Regions = append(info.Regions, regionInfo{r.ID, r.Kind.String(), r.Base.String(), r.Length, header})
	}
	// In text a beat that a reader would refuse shows only why.
	if in.Output == "json" {
		return in.PrintJSON(info)
	}
	beat := fmt.Sprintf("%d at %s, view %d, reclaim %d", info.Beat.Counter, info.Beat.Time, info.Beat.View, info.Beat.Reclaim)
	if info.Beat.Fault != "" {
		beat = info.Beat.Fault
	}
	lines := []string{"region\tkind\tbase\tlength\theader\n"}
	for _, r := range info.Regions {
		lines = append(lines, fmt.Sprintf("%d\t%s\t%s\t%s\t%s\n", r.ID, r.Kind, r.Base, cli.Bytes(int64(r.Length)), r.Header))
	}
	return in.Print(fmt.Sprintf("incarnation  %s\nview         %d, %d shards\nbeat         %s\n\n%s",
		info.Incarnation, info.Version, info.Shards, beat, cli.Table(lines)))
}

// bucket shows a bucket that was READ at a place, with the items of its slots.
func (in *inspector) bucket(p layout.Place, raw []byte) (bucketInfo, error) {
	b, err := layout.ParseBucket(raw)
	if err != nil {
		return bucketInfo{}, err
	}
	info := bucketInfo{Place: p.String(), Header: b.Header().String(), Slots: []slotInfo{}}
	for i := range layout.BucketSlots {
		s := b.Slot(i)
		if s.Empty() {
			continue
		}
		// A slot of class Pebble says that the item is on disk: there is nothing to
		// READ.
		slot := slotInfo{Slot: i, Word: s.String()}
		if s.Class() != layout.ClassPebble {
			item, err := in.item(s)
			if err != nil {
				return bucketInfo{}, err
			}
			slot.Item = item
		}
		info.Slots = append(info.Slots, slot)
	}
	return info, nil
}

// item READs the item of a slot. If it is large only the head is read: its key is
// there, and the value is not shown. A fault of an item is part of what is shown.
func (in *inspector) item(s layout.Slot) (*itemInfo, error) {
	const most = 128 << 10 // of a larger one the head, in which the key is, will do
	n := layout.ClassSize(s.Class())
	if n <= 0 {
		return &itemInfo{Fault: fmt.Sprintf("class %d has no size", s.Class())}, nil
	}
	raw, err := in.read(s.Place(), min(n, most))
	if err != nil {
		return &itemInfo{Fault: err.Error()}, nil
	}
	v, err := layout.ParseItem(raw, in.view.Incarnation, s.Place())
	if err != nil {
		return &itemInfo{Fault: err.Error()}, nil
	}
	return &itemInfo{State: v.State.String(), Version: v.Version.String(), Key: in.Show(v.Key()), Size: v.ValLen, raw: v.Key()}, nil
}

// text is the bucket as lines.
func (b bucketInfo) text() string {
	s := fmt.Sprintf("%s  %s\n", b.Place, b.Header)
	for _, slot := range b.Slots {
		s += fmt.Sprintf("    slot %d  %s", slot.Slot, slot.Word)
		switch {
		case slot.Item == nil:
		case slot.Item.Fault != "":
			s += "  " + slot.Item.Fault
		default:
			s += fmt.Sprintf("  %s  version %s  %d B  %s", slot.Item.State, slot.Item.Version, slot.Item.Size, slot.Item.Key)
		}
		s += "\n"
	}
	return s
}

// showRegion shows the buckets of an index region that have a slot in use, up to
// limit.
func (in *inspector) showRegion(id int64, limit int) error {
	for _, r := range in.view.Regions {
		if int64(r.ID) != id {
			continue
		}
		if r.Kind != layout.KindIndex {
			return fmt.Errorf("region %d holds items; items are found by the buckets of the index regions", id)
		}
		return in.buckets(r, limit)
	}
	return cli.Usagef("there is no region %d", id)
}

// buckets walks an index region page by page. What is no bucket (the header
// page, root words, directories) does not parse as one and is passed over.
func (in *inspector) buckets(r layout.Region, limit int) error {
	const window = 64 << 10 // bytes of one READ
	for off := uint64(0); off < r.Length && limit > 0; off += window {
		start := r.Base + layout.PlaceOfByte(off)
		raw, err := in.read(start, int(min(window, r.Length-off)))
		if err != nil {
			return err
		}
		for i := 0; i+layout.BucketSize <= len(raw) && limit > 0; i += layout.BucketSize {
			b, err := layout.ParseBucket(raw[i:])
			if err != nil || !b.Header().Valid() {
				continue // this memory holds something else, or was never written
			}
			info, err := in.bucket(start+layout.PlaceOfByte(uint64(i)), raw[i:])
			if err != nil {
				return err
			}
			if len(info.Slots) == 0 {
				continue
			}
			limit-- // empty buckets do not count: most are
			if err := in.printBucket(info); err != nil {
				return err
			}
		}
	}
	return nil
}

// printBucket prints a bucket as soon as it is read: a region may have millions.
func (in *inspector) printBucket(b bucketInfo) error {
	if in.Output == "json" {
		return in.PrintJSON(b)
	}
	return in.Print(b.text())
}
