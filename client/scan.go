package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/client/internal/route"
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
// that its keys are missing. Where shards have replicas a page is of the keys of one group, by the node that
// leads it, and all of the above holds over leaders too: a page shows what was acknowledged before it
// was asked for. If the leader is lost the next one is asked for the page, as long as the call may take.
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
			e, from, err := scans.next(ctx, left)
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

// A scanner goes through the keys of one share: of a server, or of a group of replicas.
type scanner struct {
	f       *route.Router
	share   route.Share
	shares  int // that there are, of which this is one
	opts    ScanOptions
	after   []byte
	from    bool // after itself is the first
	more    bool // there is, or may be, another page
	entries []Entry
}

// scanners is one for each share, with its first page.
func (c *Client) scanners(ctx context.Context, opts ScanOptions) (*scanners, error) {
	shares, err := route.Shares(ctx, c.rt())
	if err != nil {
		return nil, c.fail("scan", nil, err)
	}
	scans := make([]*scanner, len(shares))
	for i, share := range shares {
		s := &scanner{f: c.rt(), share: share, shares: len(shares), opts: opts, after: opts.After, more: true}
		if len(opts.Start) > 0 && (len(s.after) == 0 || bytes.Compare(s.after, opts.Start) < 0) {
			s.after, s.from = opts.Start, true
		}
		scans[i] = s
	}
	if len(scans) == 1 {
		return &scanners{last: scans[0]}, nil
	}
	errs, all := make([]error, len(scans)), make([][]*scanner, len(scans))
	var wg sync.WaitGroup
	for i, s := range scans {
		wg.Go(func() { all[i], errs[i] = s.fill(ctx, opts.Limit) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	merged := new(scanners)
	for _, s := range slices.Concat(all...) {
		merged.put(s)
	}
	return merged, nil
}

// fill sees to it that an entry is there, if there is one, and returns the scanner: or those of the groups that
// its node's share has become, which go on where it was. left is how many may still be wanted; 0: all.
func (s *scanner) fill(ctx context.Context, left int) ([]*scanner, error) {
	for len(s.entries) == 0 && s.more {
		page, err := s.fetchPage(ctx, left)
		if err != nil {
			shares := s.share.Became(ctx, s.f, err)
			if shares == nil {
				return nil, err
			}
			var all []*scanner
			for _, share := range shares {
				of := *s
				of.share, of.shares = share, s.shares*len(shares)
				filled, err := of.fill(ctx, left)
				if err != nil {
					return nil, err
				}
				all = append(all, filled...)
			}
			return all, nil
		}
		s.entries, s.more = page.entries, page.more
		s.after, s.from = page.next, false
	}
	return []*scanner{s}, nil
}

// endPage forgets what is left of the page: behind a value that is got by its key,
// of a later moment than the page, the older values of the page must not stand.
func (s *scanner) endPage(after []byte) {
	if len(s.entries) > 0 {
		s.entries, s.more = nil, true
		s.after, s.from = after, false
	}
}

// scanners are those of one scan.
type scanners struct {
	list []*scanner // that have an entry, by the key of their first
	last *scanner   // whose entry was taken last; it is not in list
}

// put puts a scanner among those that have an entry, if it has one.
func (m *scanners) put(s *scanner) {
	if len(s.entries) > 0 {
		i, _ := slices.BinarySearchFunc(m.list, s, func(a, b *scanner) int { return bytes.Compare(a.entries[0].Key, b.entries[0].Key) })
		m.list = slices.Insert(m.list, i, s)
	}
}

// next takes the entry with the lowest key, and says whose it is; nil: there are no more.
func (m *scanners) next(ctx context.Context, left int) (*Entry, *scanner, error) {
	if m.last != nil {
		filled, err := m.last.fill(ctx, left)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range filled {
			m.put(s)
		}
		m.last = nil
	}
	if len(m.list) == 0 {
		return nil, nil, nil
	}
	s := m.list[0]
	m.list, m.last = slices.Delete(m.list, 0, 1), s
	e := &s.entries[0]
	s.entries = s.entries[1:]
	return e, s, nil
}

// A scanPage is a page in memory of its own.
type scanPage struct {
	entries []Entry
	next    []byte
	more    bool
}

// maxPageEntries is how many entries a page may have; the message bounds it too.
const maxPageEntries = 1000

// pagePatience is how long the leader of a group may take for a page before another replica is asked: a
// page looks at tens of thousands of keys at most, and may wait for the scans of others. It is never more than a quarter
// of Config.Timeout.
const pagePatience = 2 * time.Second

// fetchPage asks for the page that comes next.
func (s *scanner) fetchPage(ctx context.Context, left int) (page scanPage, err error) {
	if s.share.Group == 0 {
		p, err := s.share.At(s.f)
		if err != nil {
			return page, err
		}
		l := p.Begin(ctx)
		err = p.Ask(&l, "scan", nil, func(at *session.Session) (err error) {
			page, err = s.pageOn(at, &l, left)
			return err
		})
		p.Counts().ScanPages.Add(1)
		return page, err
	}
	var way route.Reroute
	defer way.End()
	for {
		p, err := s.share.At(s.f)
		if err == nil {
			page, err = s.pageLed(ctx, p, max(way.PatienceAt(p), min(pagePatience, s.f.Config().Timeout/4)), left)
		}
		if err == nil {
			p.Counts().ScanPages.Add(1)
			return page, nil
		}
		next := s.share.Again(ctx, s.f, &way, p, err)
		if next == nil {
			return page, s.f.Fail("scan", nil, way.Because(err))
		}
		ctx = next
	}
}

// pageLed is one try at a replica.
func (s *scanner) pageLed(ctx context.Context, p *peer.Peer, patience time.Duration, left int) (page scanPage, err error) {
	l := p.Begin(ctx)
	p.Replica.Hurry(&l, patience)
	at, err := p.Replica.Reach(&l)
	if err != nil {
		return page, p.Replica.Fail("scan", nil, "", err)
	}
	if page, err = s.pageOn(at, &l, left); base.Again(err) {
		p.Counts().RetryLost.Add(1)
		p.Settle(&l, at)
	}
	return page, p.Replica.Fail("scan", nil, at.Addr, route.PutOff(err))
}

// likely is how many of the next left entries of a scan are asked for at once: of a group, rather more than its part. Keys
// are spread over groups by hash, so if all were asked of each group nearly all of them would travel for nothing.
func (s *scanner) likely(left int) int {
	if s.share.Group == 0 || s.shares == 1 {
		return left
	}
	return min(left, 2*left/s.shares+8)
}

// pageOn asks one session.
func (s *scanner) pageOn(at *session.Session, l *base.Limit, left int) (page scanPage, err error) {
	req := wire.Scan{
		Limit: maxPageEntries, KeysOnly: s.opts.KeysOnly, Prefix: s.opts.Prefix, After: s.after, From: s.from, End: s.opts.End, Group: s.share.Group,
	}
	if left > 0 {
		req.Limit = uint32(min(s.likely(left), maxPageEntries))
	}
	var r session.Reply
	var refused base.Refusals
	for {
		sl, err := at.Open(l)
		if err != nil {
			return page, refused.Because(err)
		}
		if r, err = sl.Call(l, wire.AppendScan(sl.Buf[:0], sl.ID(), req)); err == nil {
			break
		}
		if err = refused.Again(at.Counts, l, err); err != nil {
			return page, err
		}
	}
	m, err := wire.ParseScanReply(r.Body)
	if err != nil {
		return page, r.Malformed(err)
	}
	// A page of a range may be its first key alone, which is where it began.
	if on := bytes.Compare(m.Next, s.after); m.More && (len(m.Next) == 0 || on < 0 || on == 0 && !s.from) {
		return page, r.Malformed(errors.New("a page that leads nowhere"))
	}
	page = copyPage(&m)
	r.Done()
	return page, nil
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
