package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/store/internal/reads"
)

// tell is a page in a few characters.
func tell(p ScanPage) string {
	var out []string
	for _, e := range p.Entries {
		switch {
		case e.Omitted:
			out = append(out, fmt.Sprintf("%s omitted", e.Key))
		case e.Value == nil:
			out = append(out, string(e.Key))
		default:
			out = append(out, fmt.Sprintf("%s=%s", e.Key, clip(string(e.Value))))
		}
	}
	return fmt.Sprintf("%s more=%v next=%s", strings.Join(out, ", "), p.More, p.Next)
}

// TestScanPageIsOfOneMoment: a batch is written between a page's snapshot and the
// look at its entries. Nothing of the snapshot stands behind an entry that is, or
// will be got, of a later moment; and where only keys are asked for, a batch that
// takes one key away and puts another is seen as a whole or not at all.
func TestScanPageIsOfOneMoment(t *testing.T) {
	large := pattern(100_000, "v")
	for _, c := range []struct {
		name   string
		before []Part
		cold   bool // memory does not know what is there before
		batch  []Part
		req    ScanRequest
		want   string
	}{
		{
			name:   "a value too large for the page",
			before: []Part{{Key: []byte("a"), Value: []byte(large)}, {Key: []byte("b"), Value: []byte("old")}},
			batch:  []Part{{Key: []byte("a"), Value: []byte(large)}, {Key: []byte("b"), Value: []byte("new")}},
			want:   "a omitted more=true next=a",
		}, {
			name:   "the same, which memory does not know",
			before: []Part{{Key: []byte("a"), Value: []byte(large)}, {Key: []byte("b"), Value: []byte("old")}},
			cold:   true,
			batch:  []Part{{Key: []byte("c"), Value: []byte("new")}},
			want:   "a omitted more=true next=a",
		}, {
			name:   "the last of all",
			before: []Part{{Key: []byte("a"), Value: []byte(large)}},
			batch:  []Part{{Key: []byte("b"), Value: []byte("new")}},
			want:   "a omitted more=false next=",
		}, {
			name:   "a key that had expired",
			before: []Part{{Key: []byte("a"), Value: []byte("old"), TTL: 1}, {Key: []byte("b"), Value: []byte("old")}},
			batch:  []Part{{Key: []byte("a"), Value: []byte("new")}, {Key: []byte("b"), Value: []byte("new")}},
			want:   "a=new more=true next=a",
		}, {
			name:   "keys alone, one moved",
			before: []Part{{Key: []byte("a"), Value: []byte(large), TTL: time.Hour}, {Key: []byte("c"), Value: []byte("old")}},
			batch:  []Part{{Key: []byte("a"), Delete: true}, {Key: []byte("b"), Value: []byte("new")}},
			req:    ScanRequest{KeysOnly: true},
			want:   "a, c more=false next=",
		}, {
			name:   "the same, which memory does not know",
			before: []Part{{Key: []byte("a"), Value: []byte(large), TTL: time.Hour}, {Key: []byte("c"), Value: []byte("old")}},
			cold:   true,
			batch:  []Part{{Key: []byte("a"), Delete: true}, {Key: []byte("b"), Value: []byte("new")}},
			req:    ScanRequest{KeysOnly: true},
			want:   "a, c more=false next=",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := memFS()
			conf := testConfig(fs)
			n := open(t, conf)
			n.do(Write{Op: Op{Kind: OpBatch, Parts: c.before}})
			if c.cold {
				if err := n.Close(); err != nil {
					t.Fatal(err)
				}
				conf = testConfig(fs)
				conf.holdFill = make(chan struct{})
				defer close(conf.holdFill)
				n = open(t, conf)
			}
			c.req.MaxBytes, c.req.Limit = 1000, 100
			page, err := reads.OpenForTests(n.Reads, c.req, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer page.Close()
			n.do(Write{Op: Op{Kind: OpBatch, Parts: c.batch}})
			p, err := page.Read(t.Context(), c.req)
			if err != nil || tell(p) != c.want {
				t.Errorf("%s, %v; want %s", tell(p), err, c.want)
			}
		})
	}
}

// TestScanReadsNoValueForNothing: a page that has no room for a value does not read
// it, and one of keys alone reads none, or, of Pebble's values, some megabytes.
func TestScanReadsNoValueForNothing(t *testing.T) {
	var blobs atomic.Int64 // reads
	mem := vfs.NewMem()
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".blob") && (op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpFileRead) {
			blobs.Add(1)
		}
		return nil
	}))
	n := open(t, testConfig(fs))
	for i := range 12 {
		n.do(Write{Op: Op{Key: fmt.Appendf(nil, "k%02d", i), Value: []byte(pattern(1<<20, "v")), TTL: time.Hour}})
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	conf := testConfig(fs)
	conf.holdFill = make(chan struct{})
	defer close(conf.holdFill)
	n = open(t, conf)
	if err := n.disk.ForTests().DB().Flush(); err != nil { // from the log, if it was there still
		t.Fatal(err)
	}
	blobs.Store(0)
	p, err := n.Scan(t.Context(), ScanRequest{MaxBytes: 1000})
	if want := "k00 omitted more=true next=k00"; err != nil || tell(p) != want || blobs.Load() != 0 {
		t.Errorf("%s, %v after %d reads of values; want %s after none", tell(p), err, blobs.Load(), want)
	}
	p, err = n.Scan(t.Context(), ScanRequest{KeysOnly: true})
	ok := len(p.Entries) == 12 && !p.More && blobs.Load() == 0 // a record says length and times of its value
	if err != nil || !ok {
		t.Errorf("%s, %v after %d reads of values", tell(p), err, blobs.Load())
	}
	if keys := n.keys(ScanRequest{KeysOnly: true}); len(keys) != 12 {
		t.Errorf("%d keys of 12: %q", len(keys), keys)
	}
}

// TestReadsObeyTheirContext: who asks with a context that is over costs nothing.
func TestReadsObeyTheirContext(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.put(0, "k", "v")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := n.Stats()
	_, get := n.Get(ctx, 0, []byte("k"), nil)
	_, stat := n.Stat(ctx, 0, []byte("k"))
	_, hold := n.Hold(ctx, 0, []byte("k"))
	_, scan := n.Scan(ctx, ScanRequest{})
	for name, err := range map[string]error{"Get": get, "Stat": stat, "Hold": hold, "Scan": scan} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st := n.Stats(); st.Resident != before.Resident || st.Scans != before.Scans || st.Holds != before.Holds {
		t.Errorf("something was done: %+v", st)
	}
}
