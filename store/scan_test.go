package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/reads"
)

// keys returns the keys of a whole scan, page by page.
func (n *node) keys(req ScanRequest) (out []string) {
	n.t.Helper()
	for pages := 0; ; pages++ {
		p, err := n.Scan(n.t.Context(), req)
		if err != nil {
			n.t.Fatalf("Scan: %v", err)
		}
		for _, e := range p.Entries {
			out = append(out, string(e.Key))
		}
		if !p.More {
			return out
		}
		if string(p.Next) <= string(req.After) && pages > 0 {
			n.t.Fatalf("the scan does not go on: next %q after %q", p.Next, req.After)
		}
		req.After, req.From = p.Next, false
	}
}

func TestScanRange(t *testing.T) {
	n := open(t, testConfig(memFS()))
	for i, key := range []string{"a", "b", "b\x00", "ba", "c", "\xff"} {
		n.put(i%4, key, "v")
	}
	for _, c := range []struct {
		req  ScanRequest
		want []string
	}{
		{ScanRequest{}, []string{"a", "b", "b\x00", "ba", "c", "\xff"}},
		{ScanRequest{After: []byte("b")}, []string{"b\x00", "ba", "c", "\xff"}},
		{ScanRequest{After: []byte("b"), From: true}, []string{"b", "b\x00", "ba", "c", "\xff"}},
		{ScanRequest{From: true}, []string{"a", "b", "b\x00", "ba", "c", "\xff"}},
		{ScanRequest{End: []byte("b")}, []string{"a"}},
		{ScanRequest{End: []byte("b\x00")}, []string{"a", "b"}},
		{ScanRequest{After: []byte("a"), End: []byte("c")}, []string{"b", "b\x00", "ba"}},
		{ScanRequest{After: []byte("c"), End: []byte("a")}, nil},
		{ScanRequest{Prefix: []byte("b"), End: []byte("ba")}, []string{"b", "b\x00"}},
		{ScanRequest{Prefix: []byte("b"), End: []byte("a")}, nil},
		{ScanRequest{Prefix: []byte("b"), After: []byte("a"), From: true, End: []byte("z")}, []string{"b", "b\x00", "ba"}},
		{ScanRequest{Prefix: []byte("\xff")}, []string{"\xff"}},
	} {
		for _, limit := range []int{0, 1, 2} {
			c.req.Limit = limit
			if got := n.keys(c.req); !slices.Equal(got, c.want) {
				t.Errorf("prefix %q from %q (%v) to %q, %d at a time: %q, want %q",
					c.req.Prefix, c.req.After, c.req.From, c.req.End, limit, got, c.want)
			}
		}
	}
}

// TestScanExpiry: keys that have expired are left out, whatever lies in Pebble,
// and large values are no exception where only keys are asked for.
func TestScanExpiry(t *testing.T) {
	n := open(t, testConfig(memFS()))
	for i, size := range []int{0, 10, disk.SeparateFrom, 100_000} {
		for _, ttl := range []time.Duration{0, time.Nanosecond, time.Hour} {
			n.do(Write{Op: Op{Shard: uint16(i), Key: fmt.Appendf(nil, "%d/%v", i, ttl), Value: []byte(pattern(size, "v")), TTL: ttl}})
		}
	}
	waitFor(t, "the shortest to be over", func() bool { return n.clock.Now() > 0 && len(n.keys(ScanRequest{})) == 8 })
	for _, req := range []ScanRequest{{}, {KeysOnly: true}, {MaxBytes: 50}, {MaxBytes: 50, KeysOnly: true}, {Limit: 1}} {
		var got []string
		for {
			p, err := n.Scan(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Entries {
				got = append(got, string(e.Key))
				if wantExpiry := string(e.Key[2:]) == "1h0m0s"; (e.Expiry != 0) != wantExpiry {
					t.Errorf("%s: expiry %d", e.Key, e.Expiry)
				}
				if size := []int{0, 10, disk.SeparateFrom, 100_000}[e.Key[0]-'0']; e.ValLen != size || !req.KeysOnly && !e.Omitted && len(e.Value) != size {
					t.Errorf("%s: %d bytes announced, %d there, omitted %v", e.Key, e.ValLen, len(e.Value), e.Omitted)
				}
			}
			if !p.More {
				break
			}
			req.After = p.Next
		}
		want := []string{"0/0s", "0/1h0m0s", "1/0s", "1/1h0m0s", "2/0s", "2/1h0m0s", "3/0s", "3/1h0m0s"}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q", req, got, want)
		}
	}
}

// TestScanLook: a page ends after so many keys, although all of them have
// expired, and the next one goes on behind them.
func TestScanLook(t *testing.T) {
	n := open(t, testConfig(memFS()))
	var parts []Part
	for i := range 10 {
		parts = append(parts, Part{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v"), TTL: time.Microsecond})
	}
	parts = append(parts, Part{Key: []byte("l"), Value: []byte("v")})
	n.do(Write{Op: Op{Shard: 1, Kind: OpBatch, Parts: parts}})
	page, err := reads.OpenForTests(n.Reads, ScanRequest{}, 4) // its snapshot has all of them, whatever is removed now
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	waitFor(t, "the keys to expire", func() bool { return n.keys(ScanRequest{})[0] == "l" })
	req := ScanRequest{Limit: 5, MaxBytes: 1000}
	for _, want := range []struct {
		next string
		keys int
	}{{"k3", 0}, {"k7", 0}, {"", 1}} {
		p, err := page.Read(t.Context(), req)
		if err != nil || len(p.Entries) != want.keys || string(p.Next) != want.next || p.More != (want.next != "") {
			t.Fatalf("%d entries, next %q, more %v, %v; want %+v", len(p.Entries), p.Next, p.More, err, want)
		}
	}
}

// TestScanPauses: a page is made in slices, and a call that ends between two of them
// makes no more.
func TestScanPauses(t *testing.T) {
	n := open(t, testConfig(memFS()))
	for i := range 3*reads.ScanPause + 1 {
		n.put(i%4, fmt.Sprintf("k%04d", i), "v")
	}
	pauses, begin := 0, len(n.shards) // one behind each shard whose newest keys are sorted
	page, err := n.Scan(t.Context(), ScanRequest{Pause: func() { pauses++ }})
	if err != nil || len(page.Entries) != 3*reads.ScanPause+1 || pauses != begin+3 {
		t.Errorf("%d keys in a page with %d pauses, %v", len(page.Entries), pauses, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	pauses = 0
	_, err = n.Scan(ctx, ScanRequest{Pause: func() { pauses++; cancel() }})
	if !errors.Is(err, context.Canceled) || pauses != 1 {
		t.Errorf("after %d pauses, in the first of which the call ended: %v", pauses, err)
	}
}
