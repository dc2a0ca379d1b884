package client_test

import (
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A value that a page leaves out is got by its key, and may be a newer one than
// the page tells of: the entry is of one version all the same.
func TestScanEntryIsOfOneVersion(t *testing.T) {
	f, _, c := newOneSided(t)
	f.Change(func(mem []byte) { f.PutItem(mem, oldSeg, placeB, fakeKey, []byte("newer"), 5) })
	f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type != wire.TypeScan {
			return nil, false
		}
		out := wire.AppendScanEntry(wire.BeginScanReply(nil, h.ID), wire.ScanEntry{Version: 1, ValueLen: 3, Key: fakeKey})
		out = wire.EndScanReply(out, 0, 1, false, nil)
		wire.SetCredits(out, 1)
		return out, true
	}
	for e, err := range c.Scan(t.Context(), client.ScanOptions{}) {
		if err != nil || string(e.Value) != "newer" || e.Size != 5 || e.Version != 5 {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

// The first page of a range may hold its first key alone: it was asked for no
// more, or no more fits.
func TestScanFromAKeyThatFillsThePage(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	for i := range 3 {
		if err := c.Put(t.Context(), fmt.Appendf(nil, "k%d", i), make([]byte, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	for limit, want := range []int{3, 1, 2} {
		got := 0
		for e, err := range c.Scan(t.Context(), client.ScanOptions{Start: []byte("k0"), Limit: limit}) {
			if err != nil || string(e.Key) != fmt.Sprintf("k%d", got) || len(e.Value) != 10_000 {
				t.Fatalf("limit %d: %q, %v", limit, e.Key, err)
			}
			got++
		}
		if got != want {
			t.Errorf("limit %d: %d keys, want %d", limit, got, want)
		}
	}
}

// Behind a value that a page leaves out, which is got by its key and may be newer
// than the page, nothing of that page is yielded, whatever the server has put there:
// the next page is asked for.
func TestScanGoesOnBehindALaterValue(t *testing.T) {
	f, _, c := newOneSided(t)
	f.Change(func(mem []byte) { f.PutItem(mem, oldSeg, placeB, fakeKey, []byte("newer"), 5) })
	behind := append(fakeKey[:len(fakeKey):len(fakeKey)], " behind"...)
	pages := 0
	f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypeScan {
			return nil, false
		}
		m, err := wire.ParseScan(wire.Body(msg))
		if err != nil {
			t.Error(err)
		}
		out := wire.BeginScanReply(nil, h.ID)
		switch pages++; pages {
		case 1:
			out = wire.AppendScanEntry(out, wire.ScanEntry{Version: 1, ValueLen: 3, Key: fakeKey})
			out = wire.AppendScanEntry(out, wire.ScanEntry{Version: 2, ValueLen: 5, Key: behind, Value: []byte("older"), HasValue: true})
			out = wire.EndScanReply(out, 0, 2, false, nil)
		default:
			if string(m.After) != string(fakeKey) || m.From {
				t.Errorf("page %d is asked for behind %q, from %v", pages, m.After, m.From)
			}
			out = wire.AppendScanEntry(out, wire.ScanEntry{Version: 6, ValueLen: 5, Key: behind, Value: []byte("newer"), HasValue: true})
			out = wire.EndScanReply(out, 0, 1, false, nil)
		}
		wire.SetCredits(out, 1)
		return out, true
	}
	got := ""
	for e, err := range c.Scan(t.Context(), client.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got += fmt.Sprintf("%s=%s ", e.Key, e.Value)
	}
	if want := "the key=newer the key behind=newer "; got != want || pages != 2 {
		t.Errorf("%s after %d pages; want %s", got, pages, want)
	}
}
