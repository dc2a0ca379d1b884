package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Scan goes through keys in byte order:
//
//	for entry, err := range c.Scan(ctx, client.ScanOptions{Prefix: []byte("user:")}) {
//		if err != nil { … }
//		…
//	}
//
// Pages come by SEND; a value too large for a page is got by its key, and if
// the key has gone in between its entry is left out. Each page is of one moment,
// each of a later one than the page before: a key written or deleted meanwhile may
// be seen or not, every other key of the range is seen exactly once, and a scan that
// has shown one value of a batch shows no older one behind it. After an error, which
// is as of Get or ErrUnsupported (a server without a disk has no order of keys),
// the loop ends; another Scan with After set to the last key goes on. ctx covers
// the whole loop; without a deadline Config.Timeout is for each page.
//
// In a cluster the pages of all nodes are merged, so the order is that of all
// keys; a node that cannot be reached ends the loop, because a program could not tell
// that its keys are missing.
func (c *Client) Scan(ctx context.Context, opts ScanOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if max(len(opts.Prefix), len(opts.Start), len(opts.After), len(opts.End)) > layout.MaxKeyLen {
			yield(Entry{}, c.fail("scan", nil, fmt.Errorf("%w: no key is longer than %d bytes", ErrKeyTooLarge, layout.MaxKeyLen)))
			return
		}
		if opts.Limit < 0 {
			yield(Entry{}, c.fail("scan", nil, fmt.Errorf("%w: limit %d", ErrRange, opts.Limit)))
			return
		}
		scans, err := c.scanners(ctx, opts)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for left := opts.Limit; ; {
			e, from, err := nextOf(ctx, scans, left)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if e == nil {
				return
			}
			if e.Value == nil && !opts.KeysOnly {
				from.endPage(e.Key)
				w := read.Query{N: -1, Dst: []byte{}}
				if err := c.get(ctx, "get", e.Key, &w); errors.Is(err, ErrNotFound) {
					continue
				} else if err != nil {
					yield(Entry{}, err)
					return
				}
				// It may have been written since: all of it is of one version.
				e.Value, e.Size, e.Version, e.Expiry = w.Dst, w.Info.Size, w.Info.Version, w.Info.Expiry
			}
			if !yield(*e, nil) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}

// A scanner goes through the keys of one server.
type scanner struct {
	p       *peer.Peer
	opts    ScanOptions
	after   []byte
	from    bool // after itself is the first
	more    bool // there is, or may be, another page
	entries []Entry
}

// scanners is one for each server, with its first page.
func (c *Client) scanners(ctx context.Context, opts ScanOptions) ([]*scanner, error) {
	peers, err := c.rt().OwnersNow(ctx)
	if err != nil {
		return nil, c.fail("scan", nil, err)
	}
	scans := make([]*scanner, len(peers))
	for i, p := range peers {
		s := &scanner{p: p, opts: opts, after: opts.After, more: true}
		if len(opts.Start) > 0 && (len(s.after) == 0 || bytes.Compare(s.after, opts.Start) < 0) {
			s.after, s.from = opts.Start, true
		}
		scans[i] = s
	}
	if len(scans) == 1 {
		return scans, nil
	}
	errs := make([]error, len(scans))
	var wg sync.WaitGroup
	for i, s := range scans {
		wg.Go(func() { errs[i] = s.fill(ctx, opts.Limit) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return scans, nil
}

// fill sees to it that an entry is there, if there is one. left is how many may
// still be wanted; 0: all.
func (s *scanner) fill(ctx context.Context, left int) error {
	for len(s.entries) == 0 && s.more {
		page, err := fetchPage(ctx, s.p, s.opts, s.after, s.from, left)
		if err != nil {
			return err
		}
		s.entries, s.more = page.entries, page.more
		s.after, s.from = page.next, false
	}
	return nil
}

// endPage forgets what is left of the page: behind a value that is got by its key,
// of a later moment than the page, the older values of the page must not stand.
func (s *scanner) endPage(after []byte) {
	if len(s.entries) > 0 {
		s.entries, s.more = nil, true
		s.after, s.from = after, false
	}
}

// nextOf takes the entry with the lowest key, and says whose it is; nil: there are
// no more. Of few servers, so they are gone through one by one.
func nextOf(ctx context.Context, scans []*scanner, left int) (*Entry, *scanner, error) {
	var first *scanner
	for _, s := range scans {
		if err := s.fill(ctx, left); err != nil {
			return nil, nil, err
		}
		if len(s.entries) > 0 && (first == nil || bytes.Compare(s.entries[0].Key, first.entries[0].Key) < 0) {
			first = s
		}
	}
	if first == nil {
		return nil, nil, nil
	}
	e := &first.entries[0]
	first.entries = first.entries[1:]
	return e, first, nil
}

// A scanPage is a page in memory of its own.
type scanPage struct {
	entries []Entry
	next    []byte
	more    bool
}

// maxPageEntries is how many entries a page may have; the message bounds it too.
const maxPageEntries = 1000

func fetchPage(ctx context.Context, c *peer.Peer, opts ScanOptions, after []byte, from bool, left int) (scanPage, error) {
	p := c.Begin(ctx)
	req := wire.Scan{
		Limit: maxPageEntries, KeysOnly: opts.KeysOnly, Prefix: opts.Prefix, After: after, From: from, End: opts.End,
	}
	if left > 0 {
		req.Limit = uint32(min(left, maxPageEntries))
	}
	var page scanPage
	var refused base.Refusals
	err := c.Ask(&p, "scan", nil, func(s *session.Session) error {
		var r session.Reply
		for {
			sl, err := s.Open(&p)
			if err != nil {
				return refused.Because(err)
			}
			if r, err = sl.Call(&p, wire.AppendScan(sl.Buf[:0], sl.ID(), req)); err == nil {
				break
			}
			if err = refused.Again(c.Counts(), &p, err); err != nil {
				return err
			}
		}
		m, err := wire.ParseScanReply(r.Body)
		if err != nil {
			return r.Malformed(err)
		}
		// A page of a range may be its first key alone, which is where it began.
		if on := bytes.Compare(m.Next, after); m.More && (len(m.Next) == 0 || on < 0 || on == 0 && !from) {
			return r.Malformed(errors.New("a page that leads nowhere"))
		}
		page = copyPage(&m)
		r.Done()
		return nil
	})
	c.Counts().ScanPages.Add(1)
	return page, err
}

// copyPage takes a page out of the receive buffer before the caller's code runs:
// it may take its time.
func copyPage(m *wire.ScanReply) scanPage {
	page := scanPage{more: m.More, next: slices.Clone(m.Next)}
	for e := range m.Entries {
		both := make([]byte, 0, len(e.Key)+len(e.Value))
		both = append(append(both, e.Key...), e.Value...)
		out := Entry{Key: both[:len(e.Key):len(e.Key)], Size: int64(e.ValueLen), Version: e.Version, Expiry: base.ExpiryTime(e.Expiry)}
		if e.HasValue {
			out.Value = both[len(e.Key):]
		}
		page.entries = append(page.entries, out)
	}
	return page
}
