package server

import (
	"slices"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The SEND path of reads. It answers every key at any time; what it answers
// is published, which the store sees to.

// getTries bounds how often a get begins again because the value changed its
// size between two looks.
const getTries = 4

// get answers with the value, or with a place that is held for the client
// where the value does not fit or the client does not want it inline. It runs
// on the pool.
func (r *request) get() {
	m, err := wire.ParseGet(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	if !r.mayKey(m.Key) {
		return
	}
	s := r.s
	shard := cluster.ShardOf(m.Key, s.srv.shards)
	if !r.ours(shard) {
		return
	}
	limit := int(min(uint64(m.MaxInline), uint64(s.replySize-wire.GetReplyHead)))
	size := 0
	for range getTries {
		// The length first: a value of 64 MiB must not be copied to learn
		// that it does not fit.
		info, err := s.srv.store.Stat(s.ctx, shard, m.Key)
		if err != nil {
			r.refuse(err)
			return
		}
		if size = info.ValLen; size > limit {
			r.hold(shard, m.Key, size)
			return
		}
		if r.getInline(shard, m.Key, info.ValLen) {
			return
		}
	}
	r.hold(shard, m.Key, size)
}

// getInline answers with the value, read straight into the reply. false: the
// value has grown beyond n bytes meanwhile.
func (r *request) getInline(shard uint16, key []byte, n int) bool {
	s := r.s
	b, err := s.lane.newReply(s, wire.GetReplyHead+n)
	if err != nil {
		r.refuse(err)
		return true
	}
	room := min(len(b.mem), s.replySize)
	v, err := s.srv.store.Get(s.ctx, shard, key, b.mem[:wire.GetReplyHead:room])
	if err != nil {
		s.lane.putReply(b)
		r.refuse(err)
		return true
	}
	if len(v.Data) > room { // the store had to move it to larger memory
		s.lane.putReply(b)
		return false
	}
	b.n = len(v.Data)
	wire.FinishGetInline(b.mem[:b.n], r.hdr.ID, uint64(v.Version), v.Expiry)
	r.reply(b, wire.StatusOK)
	return true
}

// exists answers whether a key is there, and how large its value is. It runs
// on the pool.
func (r *request) exists() {
	m, err := wire.ParseKey(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	if !r.mayKey(m.Key) {
		return
	}
	if !r.oursKey(m.Key) {
		return
	}
	info, err := r.s.srv.store.Stat(r.s.ctx, cluster.ShardOf(m.Key, r.s.srv.shards), m.Key)
	if err != nil {
		r.refuse(err)
		return
	}
	r.answer(smallReply, func(dst []byte) []byte {
		return wire.AppendExistsReply(dst, r.hdr.ID, wire.ExistsReply{
			Version: uint64(info.Version), Expiry: info.Expiry, ValueLen: uint32(info.ValLen),
		})
	})
}

// scan answers with one page of keys. It runs on the pool.
func (r *request) scan() {
	m, err := wire.ParseScan(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	if !r.mayKey(m.Prefix) {
		return
	}
	s := r.s
	if !r.mapped() {
		return
	}
	room := wire.ScanRoom(s.replySize, 0)
	bytes := room
	if m.MaxBytes > 0 {
		bytes = int(min(uint64(m.MaxBytes), uint64(room)))
	}
	// No more entries than fit even if each had a key of one byte.
	limit := uint64(room / wire.EntrySize(1, 0))
	if m.Limit > 0 {
		limit = min(limit, uint64(m.Limit))
	}
	page, err := s.srv.store.Scan(s.ctx, store.ScanRequest{
		Prefix: m.Prefix, After: m.After, From: m.From, End: m.End, Limit: int(limit), MaxBytes: bytes, KeysOnly: m.KeysOnly, Pause: r.pause(),
	})
	if err != nil {
		r.refuse(err)
		return
	}
	page.Entries = slices.DeleteFunc(page.Entries, func(e store.ScanEntry) bool { return s.srv.foreign(e.Key) })
	need := s.replySize - room // what an empty page takes
	longest := len(page.Next)
	for _, e := range page.Entries {
		need += wire.EntrySize(len(e.Key), len(e.Value))
		longest = max(longest, len(e.Key))
	}
	r.answer(min(need+longest, s.replySize), func(dst []byte) []byte {
		return appendPage(dst, r.hdr.ID, page, s.replySize, m.KeysOnly)
	})
}

// appendPage encodes as many entries as fit into size bytes. The position for
// the next page is the last key that is in this one, or behind it if the store
// has passed keys that are not there any more: a page may be empty.
func appendPage(dst []byte, id uint64, page store.ScanPage, size int, keysOnly bool) []byte {
	start := len(dst)
	dst = wire.BeginScanReply(dst, id)
	used, count := 0, 0
	var last []byte
	for _, e := range page.Entries {
		out := wire.ScanEntry{
			Version: uint64(e.Version), Expiry: e.Expiry, ValueLen: uint32(e.ValLen),
			Key: e.Key, Value: e.Value, HasValue: !keysOnly && !e.Omitted,
		}
		need := entrySize(out)
		// The key itself is counted once more: it may become the position.
		if used+need > wire.ScanRoom(size, len(e.Key)) && count == 0 {
			out.Value, out.HasValue = nil, false // alone too large: without its value
			need = entrySize(out)
		}
		if used+need > wire.ScanRoom(size, len(e.Key)) {
			break
		}
		dst = wire.AppendScanEntry(dst, out)
		used += need
		count++
		last = e.Key
		if !keysOnly && !out.HasValue {
			// The client gets it now, of a later moment than this page; what is
			// behind it has to be later still (store.ScanPage).
			break
		}
	}
	more := page.More || count < len(page.Entries)
	next := last
	switch {
	case !more:
		next = nil
	case count == len(page.Entries) && used <= wire.ScanRoom(size, len(page.Next)):
		next = page.Next
	}
	return wire.EndScanReply(dst, start, uint32(count), more, next)
}

func entrySize(e wire.ScanEntry) int {
	if e.HasValue {
		return wire.EntrySize(len(e.Key), len(e.Value))
	}
	return wire.EntrySize(len(e.Key), 0)
}

// view answers with a page of the region table. It runs on the lane: the view
// is a snapshot, and registrations are looked up without a lock.
func (r *request) view() {
	m, err := wire.ParseViewRequest(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	s, srv := r.s, r.s.srv
	if s.login.oneSided {
		s.learnsTable(srv.store.ViewVersion()) // before anything of it is looked at
	}
	v := srv.store.View()
	if !s.login.oneSided {
		// A version to refresh at, and nothing else: no rkey, no hash seed.
		v = layout.View{Incarnation: v.Incarnation, Version: v.Version, Shards: v.Shards}
	}
	total := len(v.Regions)
	if uint64(m.From) > uint64(total) {
		r.fail(wire.StatusBadRequest, "first region is beyond the table")
		return
	}
	page := v.Regions[m.From:]
	page = page[:min(len(page), wire.RegionsIn(s.replySize))]
	out := make([]wire.Region, 0, len(page))
	for _, reg := range page {
		w, ok := srv.regions.wire(s.lane.dev.index, reg)
		if !ok { // the store is closing
			r.fail(wire.StatusClosing, "")
			return
		}
		out = append(out, w)
	}
	reply := wire.ViewReply{
		Incarnation: v.Incarnation, Seed: v.Seed,
		// The version of this very snapshot, and the reclaim version before it
		// is sent: a client that starts here has no older places.
		Version: v.Version, ReclaimVersion: srv.store.ReclaimVersion(),
		Shards: v.Shards, RootOffset: v.RootOffset, ReclaimOffset: v.ReclaimOffset,
		ReclaimEntries: v.ReclaimEntries, Total: uint32(total), From: m.From,
	}
	r.answer(wire.ViewReplySize(len(out)), func(dst []byte) []byte {
		return wire.AppendViewReply(dst, r.hdr.ID, reply, out)
	})
}

// statistics answers with a part of the counters as JSON. It runs on the pool.
func (r *request) statistics() {
	m, err := wire.ParseStats(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	s := r.s
	s.mu.Lock()
	text := s.stats
	s.mu.Unlock()
	if m.Offset == 0 {
		if text, err = s.srv.statsJSON(s.login); err != nil {
			r.refuse(err)
			return
		}
	}
	if uint64(m.Offset) > uint64(len(text)) {
		r.fail(wire.StatusBadRequest, "offset is beyond the text")
		return
	}
	part := text[m.Offset:]
	part = part[:min(len(part), s.replySize-wire.StatsFixed)]
	s.mu.Lock()
	// Kept only for a client that has not seen its end.
	if s.stats = text; int(m.Offset)+len(part) == len(text) {
		s.stats = nil
	}
	s.mu.Unlock()
	r.answer(wire.StatsFixed+len(part), func(dst []byte) []byte {
		return wire.AppendStatsReply(dst, r.hdr.ID, wire.StatsReply{
			Total: uint32(len(text)), Offset: m.Offset, Data: part,
		})
	})
}
