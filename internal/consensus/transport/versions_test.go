package transport

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// speaking is a pair of nodes that speak some versions. asked are the versions of the requests that come to b. A b that is fixed is a program of before ends agreed on a version: it rejects the
// requests of all versions but 1, with a rejection of version 1.
func speaking(t *testing.T, ours, theirs wire.NodeVersions, fixed bool) (a, b *site, asked func() []uint8) {
	t.Helper()
	l := &lan{sites: map[string]*site{}}
	a = l.open(t, "a", func(c *Config) { c.Speaks = ours })
	b = l.open(t, "b", func(c *Config) { c.Speaks, c.Answer = theirs, echo })
	t.Cleanup(func() { a.end(t); b.end(t) })
	b.stop()
	<-b.done
	b.done = make(chan struct{})
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	var mu sync.Mutex
	var list []uint8
	go func() {
		defer close(b.done)
		for {
			req, err := b.ln.Accept(ctx)
			if err != nil {
				return
			}
			version := req.PrivateData()[4]
			mu.Lock()
			list = append(list, version)
			mu.Unlock()
			if fixed && version != 1 {
				req.Reject([]byte("RKN1\x01\x02\x00\x00"))
				continue
			}
			b.Accept(b.dev, req)
		}
	}()
	return a, b, func() []uint8 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

// TestVersions: two nodes speak the highest version that both do, whichever of them is newer, and one that knows nothing else is met in version 1.
func TestVersions(t *testing.T) {
	one, here, next, late := wire.NodeVersions{Min: 1, Max: 1}, wire.NodeVersions{Min: 1, Max: 2}, wire.NodeVersions{Min: 2, Max: 3}, wire.NodeVersions{Min: 3, Max: 4}
	for name, c := range map[string]struct {
		ours, theirs wire.NodeVersions
		fixed        bool
		asked        []uint8
		err          error
	}{
		"the same":                       {here, here, false, []uint8{2}, nil},
		"the previous release asks":      {one, here, false, []uint8{1}, nil},
		"the previous release":           {here, one, true, []uint8{2, 1}, nil},
		"the next release":               {here, next, false, []uint8{2}, nil},
		"the next release asks":          {next, here, false, []uint8{3}, nil},
		"two releases on":                {here, late, false, []uint8{2}, ErrVersions},
		"two releases on asks":           {late, here, false, []uint8{4}, ErrVersions},
		"the next release asks the last": {next, one, true, []uint8{3}, ErrVersions},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, asked := speaking(t, c.ours, c.theirs, c.fixed)
			answer, err := a.Ask(within(t), "b", []byte("well?"))
			if !errors.Is(err, c.err) || c.err == nil && !bytes.Contains(answer, []byte("well?")) {
				t.Errorf("%q, %v, want %v", answer, err, c.err)
			}
			if got := asked(); !slices.Equal(got, c.asked) {
				t.Errorf("asked in versions %v, want %v", got, c.asked)
			}
		})
	}
}

// TestVersionsAreRemembered: a node of the previous release is asked twice once, on all lanes, and a message goes to it as to any other.
func TestVersionsAreRemembered(t *testing.T) {
	a, b, asked := speaking(t, wire.NodeVersions{Min: 1, Max: 2}, wire.NodeVersions{Min: 1, Max: 1}, true)
	if _, err := a.Ask(within(t), "b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := a.Meet(within(t), "b"); err != nil {
		t.Fatal(err)
	}
	if got := asked(); !slices.Equal(got, []uint8{2, 1, 1}) {
		t.Errorf("asked in versions %v", got)
	}
	_ = b
	synctest.Test(t, func(t *testing.T) {
		var o older
		ours := wire.NodeVersions{Min: 1, Max: 2}
		o.note("b", 1)
		if v := o.speaks("b", ours); v.Max != 1 {
			t.Errorf("at once: %v", v)
		}
		if v := o.speaks("c", ours); v != ours {
			t.Errorf("another node: %v", v)
		}
		time.Sleep(olderFor)
		if v := o.speaks("b", ours); v != ours || len(o.of) != 0 {
			t.Errorf("a while later: %v, %d are remembered", v, len(o.of))
		}
		for i := range maxOlder + 1 {
			o.note(string(rune('a'+i)), 1)
		}
		if len(o.of) > maxOlder {
			t.Errorf("%d are remembered", len(o.of))
		}
	})
}

// TestForeign: a rejection is about versions only if it says so.
func TestForeign(t *testing.T) {
	a, _ := two(t)
	ours := wire.NodeSpeaks()
	for name, c := range map[string]struct {
		private []byte
		err     error
		foreign bool
	}{
		"version 1":                   {[]byte("RKN1\x01\x02\x00\x00"), rdma.ErrRejected, true},
		"version 1, padded":           {append([]byte("RKN1\x01\x01\x00\x00"), make([]byte, 99)...), rdma.ErrRejected, true},
		"versions 3 to 4":             {[]byte("RKN1\x04\x02\x03\x00"), rdma.ErrRejected, true},
		"versions 1 to 2":             {[]byte("RKN1\x02\x02\x01\x00"), rdma.ErrRejected, false},
		"versions 2 to 3":             {[]byte("RKN1\x03\x02\x02\x00"), rdma.ErrRejected, false},
		"nothing":                     {nil, rdma.ErrRejected, false},
		"a client's":                  {[]byte("RKV1\x01\x02\x00\x00"), rdma.ErrRejected, false},
		"version 1, and the way ends": {[]byte("RKN1\x01\x02\x00\x00"), rdma.ErrPeerGone, false},
	} {
		var other *versionsError
		err := a.foreign(c.private, ours, c.err)
		if errors.As(err, &other) != c.foreign || !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
