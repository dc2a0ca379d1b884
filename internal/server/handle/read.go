package handle

import (
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/work"
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
func (r *op) get(m wire.Get) {
	s, env := r.Session, r.c.env
	if !confirmed(r, m.Key) {
		return
	}
	shard := cluster.ShardOf(m.Key, env.Shards)
	limit := int(min(uint64(m.MaxInline), uint64(s.ReplySize-wire.GetReplyHead)))
	size := 0
	for range getTries {
		// The length first: a value of 64 MiB must not be copied to learn
		// that it does not fit.
		info, err := env.Store.Stat(s.Context(), shard, m.Key)
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
func (r *op) getInline(shard uint16, key []byte, n int) bool {
	s := r.Session
	b, err := s.NewBuffer(wire.GetReplyHead + n)
	if err != nil {
		r.refuse(err)
		return true
	}
	room := min(len(b.Mem), s.ReplySize)
	v, err := r.c.env.Store.Get(s.Context(), shard, key, b.Mem[:wire.GetReplyHead:room])
	if err != nil {
		b.Free()
		r.refuse(err)
		return true
	}
	if len(v.Data) > room { // the store had to move it to larger memory
		b.Free()
		return false
	}
	if layout.IsHead(v.Data[wire.GetReplyHead:]) && !s.Parts {
		b.Free()
		r.Fail(wire.StatusUnsupported, "the value is larger than 64 MiB, and this client knows no such values: use a newer one")
		return true
	}
	b.N = len(v.Data)
	wire.FinishGetInline(b.Mem[:b.N], r.Header.ID, uint64(v.Version), v.Expiry)
	r.Reply(b, wire.StatusOK)
	return true
}

// exists answers whether a key is there, and how large its value is. It runs
// on the pool.
func (r *op) exists(m wire.Key) {
	if !confirmed(r, m.Key) {
		return
	}
	info, err := r.c.env.Store.Stat(r.Session.Context(), cluster.ShardOf(m.Key, r.c.env.Shards), m.Key)
	if err == nil {
		info, err = wholeInfo(r, m.Key, info)
	}
	if err != nil {
		r.refuse(err)
		return
	}
	r.Answer(session.SmallReply, func(dst []byte) []byte {
		return wire.AppendExistsReply(dst, r.Header.ID, wire.ExistsReply{
			Version: uint64(info.Version), Expiry: info.Expiry, ValueLen: uint32(info.ValLen),
		})
	})
}

// scan answers with one page of keys, of one group where shards have replicas. It runs on the pool.
func (r *op) scan(m wire.Scan) {
	s, env := r.Session, r.c.env
	if !confirmedAll(r) {
		return
	}
	room := wire.ScanRoom(s.ReplySize, 0)
	bytes := room
	if m.MaxBytes > 0 {
		bytes = int(min(uint64(m.MaxBytes), uint64(room)))
	}
	// No more entries than fit even if each had a key of one byte.
	limit := uint64(room / wire.EntrySize(1, 0))
	if m.Limit > 0 {
		limit = min(limit, uint64(m.Limit))
	}
	page, err := env.Store.Scan(s.Context(), store.ScanRequest{
		Prefix: m.Prefix, After: m.After, From: m.From, End: m.End, Limit: int(limit), MaxBytes: bytes, KeysOnly: m.KeysOnly, Shards: r.shards, Pause: pauseOf(r),
	})
	if err != nil {
		r.refuse(err)
		return
	}
	page.Entries = slices.DeleteFunc(page.Entries, func(e store.ScanEntry) bool { return env.foreign(e.Key) })
	for i := range page.Entries {
		if e := &page.Entries[i]; e.Value == nil {
			if n, ok := env.Store.Parts().LenOf(e.Key); ok {
				e.ValLen = int(n)
			}
		}
	}
	need := s.ReplySize - room // what an empty page takes
	longest := len(page.Next)
	for _, e := range page.Entries {
		need += wire.EntrySize(len(e.Key), len(e.Value))
		longest = max(longest, len(e.Key))
	}
	r.Answer(min(need+longest, s.ReplySize), func(dst []byte) []byte {
		return appendPage(dst, r.Header.ID, page, s.ReplySize, m.KeysOnly)
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
func (r *op) view(m wire.ViewRequest) {
	s, env := r.Session, r.c.env
	if s.OneSided {
		r.c.follower.Learns(env.Store.ViewVersion()) // before anything of it is looked at
	}
	v := env.Store.View()
	if !s.OneSided {
		// A version to refresh at, and nothing else: no rkey, no hash seed.
		v = layout.View{Incarnation: v.Incarnation, Version: v.Version, Shards: v.Shards}
	}
	total := len(v.Regions)
	if uint64(m.From) > uint64(total) {
		r.Fail(wire.StatusBadRequest, "first region is beyond the table")
		return
	}
	page := v.Regions[m.From:]
	page = page[:min(len(page), wire.RegionsIn(s.ReplySize))]
	out := make([]wire.Region, 0, len(page))
	for _, reg := range page {
		w, ok := env.Regions.Wire(s.Rail().Index, reg)
		if !ok { // the store is closing
			r.Fail(wire.StatusClosing, "")
			return
		}
		out = append(out, w)
	}
	reply := wire.ViewReply{
		Incarnation: v.Incarnation, Seed: v.Seed,
		// The version of this very snapshot, and the reclaim version before it
		// is sent: a client that starts here has no older places.
		Version: v.Version, ReclaimVersion: env.Store.ReclaimVersion(),
		Shards: v.Shards, RootOffset: v.RootOffset, ReclaimOffset: v.ReclaimOffset,
		ReclaimEntries: v.ReclaimEntries, Total: uint32(total), From: m.From,
	}
	r.Answer(wire.ViewReplySize(len(out)), func(dst []byte) []byte {
		return wire.AppendViewReply(dst, r.Header.ID, reply, out)
	})
}

// A scan keeps a processor for milliseconds, while a put or a get takes microseconds
// and needs a processor at several moments of them. So a tenant that has scans
// waiting beside the one that runs is not given all the time that there is: after
// each slice of a scan (store.ScanRequest.Pause) its worker sleeps for as long as the
// slice took, times the number of the scans that wait, ten at most, and others find a
// processor that is free. A tenant with one scan at a time is not slowed down, one
// with two gets half of the time of a worker, one that floods gets an eleventh of it.
// While requests of others wait for the same workers a rest is as long as the slice,
// whatever waits. The main login is never slowed down.

const (
	// restTimes bounds how much longer than a slice its rest is.
	restTimes = 10
	// restMax bounds one rest: a slice that took very long had no processor for a
	// part of it.
	restMax = 20 * time.Millisecond
)

// pauseOf returns what the scan r calls between its slices; nil: nothing. The slice
// begins now.
func pauseOf(r *op) func() {
	p, l := r.c.env.Scans, r.Session.Login
	if l.Name == "" {
		return nil
	}
	begun := time.Now()
	return func() {
		time.Sleep(rest(time.Since(begun), p, &l.Turns))
		begun = time.Now()
	}
}

// rest returns for how long a worker sleeps after a slice of a scan of o.
func rest(slice time.Duration, p *work.Pool, o *work.Turns) time.Duration {
	mine, others := p.Backlog(o)
	times := min(mine, restTimes)
	if others > 0 {
		times = min(mine, 1)
	}
	return min(slice*time.Duration(times), restMax)
}
