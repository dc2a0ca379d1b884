package wire

// A ViewRequest asks for one page of the region table.
//
//	┌from┬ 0 ┐
//	└4   ┴4  ┘
type ViewRequest struct {
	From uint32 // index of the first region wanted
}

// AppendViewRequest appends a ViewRequest.
func AppendViewRequest(dst []byte, id uint64, m ViewRequest) []byte {
	start := len(dst)
	dst = begin(dst, TypeView, id)
	dst = le.AppendUint32(dst, m.From)
	return finish(append(dst, 0, 0, 0, 0), start)
}

// ParseViewRequest reads the body of a ViewRequest.
func ParseViewRequest(body []byte) (ViewRequest, error) {
	f := fields{b: body}
	m := ViewRequest{From: f.u32()}
	f.zero(4)
	return m, f.done()
}

// A ViewReply is one page of the region table: the only source of rkeys that a
// client uses. Pages of different versions do not belong together: a client
// that sees the version change between pages begins again at 0.
//
//	┌incarnation┬seed┬view version┬reclaim version┐
//	└8          ┴8   ┴8           ┴8              ┘ 32
//	┌shards┬root offset┬reclaim offset┬reclaim entries┬total┬from┬count┬ 0 ┐
//	└4     ┴4          ┴4             ┴4              ┴4    ┴4   ┴4    ┴4  ┘ 64
//	count regions of 40 bytes, see Region
type ViewReply struct {
	Incarnation, Seed         uint64
	Version, ReclaimVersion   uint64
	Shards                    uint32
	RootOffset, ReclaimOffset uint32 // bytes within region 0
	ReclaimEntries            uint32
	Total                     uint32 // regions in the whole table
	From                      uint32 // index of the first one here
	regions                   []byte // RegionSize each
}

// RegionSize is the size in bytes of a region in a ViewReply.
const RegionSize = 40

// viewFixed is the size of the fields before the regions.
const viewFixed = 4*8 + 8*4

// A Region is one registered region of the server.
//
//	┌id┬kind┬ 0 ┬base┬length┬address┬rkey┬ 0 ┐
//	└4 ┴1   ┴3  ┴8   ┴8     ┴8      ┴4   ┴4  ┘
type Region struct {
	ID     uint32
	Kind   uint8  // layout.RegionKind
	Base   uint64 // layout.Place of the first byte
	Length uint64 // bytes
	Addr   uint64 // for RemoteAddr
	RKey   uint32
}

// Count returns how many regions are on this page.
func (m *ViewReply) Count() int { return len(m.regions) / RegionSize }

// Region returns region i of this page, 0 ≤ i < Count.
func (m *ViewReply) Region(i int) Region {
	b := m.regions[i*RegionSize:][:RegionSize]
	return Region{
		ID: le.Uint32(b), Kind: b[4],
		Base: le.Uint64(b[8:]), Length: le.Uint64(b[16:]),
		Addr: le.Uint64(b[24:]), RKey: le.Uint32(b[32:]),
	}
}

// RegionsIn returns how many regions fit into a reply of size bytes.
func RegionsIn(size int) int {
	return max(0, (size-HeaderSize-viewFixed)/RegionSize)
}

// ViewReplySize returns the size of a reply that holds n regions.
func ViewReplySize(n int) int { return HeaderSize + viewFixed + n*RegionSize }

// AppendViewReply appends a page that holds the given regions; it ignores the
// regions of m itself.
func AppendViewReply(dst []byte, id uint64, m ViewReply, regions []Region) []byte {
	start := len(dst)
	dst = begin(dst, TypeView.Reply(), id)
	for _, v := range [...]uint64{m.Incarnation, m.Seed, m.Version, m.ReclaimVersion} {
		dst = le.AppendUint64(dst, v)
	}
	for _, v := range [...]uint32{
		m.Shards, m.RootOffset, m.ReclaimOffset, m.ReclaimEntries,
		m.Total, m.From, uint32(len(regions)), 0,
	} {
		dst = le.AppendUint32(dst, v)
	}
	for _, r := range regions {
		dst = le.AppendUint32(dst, r.ID)
		dst = append(dst, r.Kind, 0, 0, 0)
		dst = le.AppendUint64(dst, r.Base)
		dst = le.AppendUint64(dst, r.Length)
		dst = le.AppendUint64(dst, r.Addr)
		dst = le.AppendUint32(dst, r.RKey)
		dst = append(dst, 0, 0, 0, 0)
	}
	return finish(dst, start)
}

// ParseViewReply reads the body of a page. Reserved bytes inside regions are
// checked here, so that Region needs no error.
func ParseViewReply(body []byte) (ViewReply, error) {
	f := fields{b: body}
	m := ViewReply{
		Incarnation: f.u64(), Seed: f.u64(), Version: f.u64(), ReclaimVersion: f.u64(),
		Shards: f.u32(), RootOffset: f.u32(), ReclaimOffset: f.u32(), ReclaimEntries: f.u32(),
		Total: f.u32(), From: f.u32(),
	}
	count := f.u32()
	f.zero(4)
	m.regions = f.take(uint64(count) * RegionSize)
	if m.From > m.Total || count > m.Total-m.From {
		f.fail(ErrRange)
	}
	for b := m.regions; len(b) > 0; b = b[RegionSize:] {
		if b[5]|b[6]|b[7] != 0 || le.Uint32(b[36:]) != 0 {
			f.fail(ErrReserved)
			break
		}
	}
	if err := f.done(); err != nil {
		return ViewReply{}, err
	}
	return m, nil
}
