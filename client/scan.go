package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

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
// the pages together are not: a key written or deleted meanwhile may be seen or
// not, every other key of the range is seen exactly once. After an error, which
// is as of Get or ErrUnsupported (a server without a disk has no order of keys),
// the loop ends; another Scan with After set to the last key goes on. ctx covers
// the whole loop; without a deadline Config.Timeout is for each page.
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
		after, left := opts.After, opts.Limit
		from := len(opts.Start) > 0 && (len(after) == 0 || bytes.Compare(after, opts.Start) < 0)
		if from {
			after = opts.Start
		}
		for {
			page, err := c.solo.scanPage(ctx, opts, after, from, left)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page.entries {
				if e.Value == nil && !opts.KeysOnly {
					w := want{n: -1, dst: []byte{}}
					if err := c.get(ctx, "get", e.Key, &w); errors.Is(err, ErrNotFound) {
						continue
					} else if err != nil {
						yield(Entry{}, err)
						return
					}
					// It may have been written since: all of it is of one version.
					e.Value, e.Size, e.Version, e.Expiry = w.dst, w.info.Size, w.info.Version, w.info.Expiry
				}
				if !yield(e, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if !page.more {
				return
			}
			after, from = page.next, false
		}
	}
}

// A scanPage is a page in memory of its own.
type scanPage struct {
	entries []Entry
	next    []byte
	more    bool
}

// maxPageEntries is how many entries a page may have; the message bounds it too.
const maxPageEntries = 1000

func (c *peer) scanPage(ctx context.Context, opts ScanOptions, after []byte, from bool, left int) (scanPage, error) {
	p := c.begin(ctx)
	req := wire.Scan{
		Limit: maxPageEntries, KeysOnly: opts.KeysOnly, Prefix: opts.Prefix, After: after, From: from, End: opts.End,
	}
	if left > 0 {
		req.Limit = uint32(min(left, maxPageEntries))
	}
	var page scanPage
	err := c.ask(&p, "scan", nil, func(s *session) error {
		sl, err := s.open(&p)
		if err != nil {
			return err
		}
		r, err := sl.call(&p, wire.AppendScan(sl.buf[:0], sl.id(), req))
		if err != nil {
			return err
		}
		m, err := wire.ParseScanReply(r.body)
		if err != nil {
			return r.malformed(err)
		}
		// A page of a range may be its first key alone, which is where it began.
		if on := bytes.Compare(m.Next, after); m.More && (len(m.Next) == 0 || on < 0 || on == 0 && !from) {
			return r.malformed(errors.New("a page that leads nowhere"))
		}
		page = copyPage(&m)
		r.done()
		return nil
	})
	c.n.scanPages.Add(1)
	return page, err
}

// copyPage takes a page out of the receive buffer before the caller's code runs:
// it may take its time.
func copyPage(m *wire.ScanReply) scanPage {
	page := scanPage{more: m.More, next: slices.Clone(m.Next)}
	for e := range m.Entries {
		both := make([]byte, 0, len(e.Key)+len(e.Value))
		both = append(append(both, e.Key...), e.Value...)
		out := Entry{Key: both[:len(e.Key):len(e.Key)], Size: int64(e.ValueLen), Version: e.Version, Expiry: expiryTime(e.Expiry)}
		if e.HasValue {
			out.Value = both[len(e.Key):]
		}
		page.entries = append(page.entries, out)
	}
	return page
}

// ask does f, which changes nothing, over as many sessions as it takes.
func (c *peer) ask(p *patience, op string, key []byte, f func(*session) error) error {
	server := ""
	for {
		if err := p.over(); err != nil {
			return c.fail(op, key, server, err)
		}
		s, err := c.session(p)
		if err != nil {
			return c.fail(op, key, server, err)
		}
		server = s.addr
		if err = f(s); err == nil || !again(err) {
			return c.fail(op, key, server, plain(err))
		}
		c.n.lost.Add(1)
		s.settle(p)
	}
}
