package reads

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
)

// ScanRequest asks for a page of keys, in order, over all shards or some.
type ScanRequest struct {
	Prefix   []byte // only keys that start with this; empty: all
	After    []byte // only keys behind this one; empty: from the first
	From     bool   // After itself is wanted too
	End      []byte // only keys before this one; empty: to the last
	Limit    int    // entries; 0 means 1000, at most 10,000
	MaxBytes int    // keys and values of the page; 0 means 1 MiB, at most 64 MiB
	KeysOnly bool   // leave values out
	Parts    bool   // the parts of values, and nothing else; otherwise they are left out
	// Shards are those whose keys are wanted, each once; nil: all. Keys of the others are not come upon, so
	// a page does no more for having them left out.
	Shards []uint16
	// Pause, if there is one, is called after every 64 keys, and before the first of them once
	// for each shard, on the goroutine of the call, which holds no lock meanwhile: a page may
	// take milliseconds.
	Pause func()
}

// ScanPage is a piece of the answer: the state of all its keys at one moment of
// the call. Pages of one scan are not a snapshot together, but each is of a later
// moment than the one before it. The last entry of a page may be of a later moment
// than the others, or Omitted, to be asked for by a later Get: nothing of the page's
// moment stands behind it, so a caller that goes through a scan in order never meets an older
// part of a batch behind a newer one.
type ScanPage struct {
	Entries []ScanEntry
	More    bool   // there may be keys behind the last
	Next    []byte // with More: the After of the next page
}

// ScanEntry is one key.
type ScanEntry struct {
	Shard uint16
	Key   []byte
	// Version is 0 if only the key was read, of a value of 1 KiB and up that an older
	// version of this program has written: with KeysOnly in a store where nothing ever
	// expired, and with Omitted where memory does not know the key. Of the latter Expiry is
	// not known, and ValLen is 8 too large if it has one.
	Version layout.Version
	ValLen  int    // bytes
	Expiry  uint64 // server time in microseconds since 1970; 0: never
	Value   []byte
	// Omitted says that there is a value and it was left out because it
	// alone is larger than MaxBytes. Get it by its key; it may have expired, or
	// been deleted since. It is the last of its page.
	Omitted bool
}

const (
	// A page has scanLimit entries and scanBytes bytes, or what is asked for up to
	// MaxScanLimit and MaxScanBytes.
	scanLimit    = 1000
	MaxScanLimit = 10_000
	scanBytes    = 1 << 20
	MaxScanBytes = 64 << 20
	// MaxScanApart bounds the values that a page reads for the times in front of
	// them alone, and what it reads of the log. One more than that may be read.
	MaxScanApart = 4 << 20
	// ScanPause is after how many keys Pause is called; they take about 0.1 ms.
	ScanPause = 64
)

// Scan returns one page of what was published at a moment of the call. Errors as Get.
func (r *Reads) Scan(ctx context.Context, req ScanRequest) (ScanPage, error) {
	if err := ctx.Err(); err != nil {
		return ScanPage{}, err
	}
	leave, err := r.env.Door.Enter()
	if err != nil {
		return ScanPage{}, err
	}
	defer leave()
	if !r.env.Disk.Durable() {
		return ScanPage{}, base.ErrUnsupported // memory alone has no order of keys
	}
	if max(len(req.Prefix), len(req.After), len(req.End)) > layout.MaxKeyLen {
		return ScanPage{}, base.ErrKeyTooLarge
	}
	for _, shard := range req.Shards {
		if int(shard) >= len(r.env.Shards) {
			return ScanPage{}, base.ErrShard
		}
	}
	req.Limit = min(cmp.Or(max(req.Limit, 0), scanLimit), MaxScanLimit)
	req.MaxBytes = min(cmp.Or(max(req.MaxBytes, 0), scanBytes), MaxScanBytes)

	r.counts.Scans.Add(1)
	m, err := r.openMerge(ctx, req)
	if err != nil {
		return ScanPage{}, err
	}
	defer m.close()
	for _, shard := range req.Shards { // the moment is taken
		if err := r.told(shard, base.ErrNotFound); err != base.ErrNotFound {
			return ScanPage{}, err
		}
	}
	page, err := m.page(ctx, req)
	switch {
	case errors.Is(err, base.ErrClosed), errors.Is(err, base.ErrFatal):
		return ScanPage{}, err
	case err != nil:
		return ScanPage{}, r.env.Disk.Fault(disk.StoreShard, req.Prefix, err)
	}
	return page, nil
}

// maxScanLook bounds the keys that one page looks at, of which many may have
// expired; a page may be empty and have more behind it.
const maxScanLook = 4 * MaxScanLimit

// page reads entries until a bound is reached.
func (m *merge) page(ctx context.Context, req ScanRequest) (ScanPage, error) {
	var p ScanPage
	left := req.MaxBytes
	var last []byte // the last key looked at
	for n := 0; len(m.cursors) > 0; n++ {
		if n%ScanPause == ScanPause-1 {
			if req.Pause != nil {
				req.Pause()
			}
			if err := ctx.Err(); err != nil {
				return ScanPage{}, err
			}
		}
		if len(p.Entries) == req.Limit || n == m.look || m.apart < 0 {
			p.More = true
			break
		}
		if c := m.cursors[0]; layout.IsPartKey(c.key) != req.Parts {
			last = bytes.Clone(c.key)
			if err := m.next(); err != nil {
				return ScanPage{}, err
			}
			continue
		}
		e, kind, err := m.entry(ctx, m.cursors[0], room{left: left, keysOnly: req.KeysOnly, first: len(p.Entries) == 0})
		if err != nil {
			return ScanPage{}, err
		}
		if kind == entryTooLarge {
			p.More = true
			break
		}
		if last = e.Key; kind != entryExpired {
			left -= len(e.Key) + len(e.Value)
			p.Entries = append(p.Entries, e)
		}
		if err := m.next(); err != nil {
			return ScanPage{}, err
		}
		if kind == entryLast {
			p.More = len(m.cursors) > 0
			break
		}
	}
	if p.More {
		p.Next = last
	}
	return p, nil
}

// A PageForTests is a page of a scan whose snapshot is taken and of which nothing has been
// read yet. Tests let writes come in between.
type PageForTests struct{ m *merge }

// OpenForTests begins a page that looks at so many keys at most; 0: at as many as any.
func OpenForTests(r *Reads, req ScanRequest, look int) (PageForTests, error) {
	m, err := r.openMerge(context.Background(), req)
	if err == nil && look > 0 {
		m.look = look
	}
	return PageForTests{m}, err
}

// Read reads the page, or goes on behind the one before it.
func (p PageForTests) Read(ctx context.Context, req ScanRequest) (ScanPage, error) {
	return p.m.page(ctx, req)
}

// Close releases the snapshot.
func (p PageForTests) Close() { p.m.close() }
