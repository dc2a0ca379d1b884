package backups

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/backup"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestLivesGoOn: a key keeps the moment at which it expires, and one whose time is over is left out.
func TestLivesGoOn(t *testing.T) {
	now := time.UnixMicro(5_000_000)
	for _, tc := range []struct {
		expiry uint64
		alive  bool
		ttl    time.Duration
	}{
		{0, true, 0}, {1, false, 0}, {4_999_999, false, 0}, {5_000_000, false, 0}, {5_000_001, true, time.Microsecond}, {8_000_000, true, 3 * time.Second}, {1<<64 - 1, true, maxTTL},
		{1<<63 - 1, true, maxTTL},
	} {
		rec := backup.Record{Expiry: tc.expiry}
		o, alive := optionsOf(&rec, now)
		if alive != tc.alive || o.TTL != tc.ttl {
			t.Errorf("%d: %v, %v", tc.expiry, o.TTL, alive)
		}
	}
}

// TestEach: all numbers are done, few at a time; the first error ends it, and is told.
func TestEach(t *testing.T) {
	var now, most, done atomic.Int64
	err := each(t.Context(), 100, 3, func(context.Context, int) error {
		for n := now.Add(1); ; {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		done.Add(1)
		now.Add(-1)
		return nil
	})
	if err != nil || done.Load() != 100 || most.Load() > 3 {
		t.Error(err, done.Load(), most.Load())
	}
	bad := errors.New("bad")
	err = each(t.Context(), 100, 3, func(ctx context.Context, i int) error {
		if i == 5 {
			return bad
		}
		if i > 5 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	if !errors.Is(err, bad) {
		t.Error(err)
	}
	if err := each(t.Context(), 0, 3, nil); err != nil {
		t.Error(err)
	}
}

// TestPace: several that read together read so many bytes in a second, and not more.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace{rate: 1000}
		began := time.Now()
		err := each(t.Context(), 20, 2, func(ctx context.Context, _ int) error { return p.wait(ctx, 500) })
		if took := time.Since(began); err != nil || took < 9*time.Second || took > 11*time.Second {
			t.Errorf("10,000 bytes took %v, %v", took, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.wait(ctx, 1<<40); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// backupOf makes a backup of one shard in a directory.
func backupOf(t *testing.T, records []backup.Record) (backup.Target, *backup.Manifest) {
	t.Helper()
	to, err := backup.OpenDir(filepath.Join(t.TempDir(), "new"), true)
	if err != nil {
		t.Fatal(err)
	}
	m := &backup.Manifest{
		Head:   backup.Head{Cluster: "c", ClusterID: strings.Repeat("00", 16), Shards: 1, Began: 1, Ended: 1},
		Groups: []backup.Group{{Group: 1, Index: 1, Shards: []uint16{0}}},
	}
	if err := backup.Claim(t.Context(), to, m.ClusterID, false); err != nil {
		t.Fatal(err)
	}
	keep := func(p *backup.Piece) {
		if p == nil {
			return
		}
		if _, err := backup.Keep(t.Context(), to, p, false); err != nil {
			t.Fatal(err)
		}
		m.Pieces = append(m.Pieces, backup.Entry{Piece: p.Sum.String(), Bytes: int64(len(p.Bytes)), Keys: p.Keys, First: p.First})
	}
	var c backup.Cutter
	for _, r := range records {
		keep(c.Add(r))
	}
	keep(c.End())
	if err := backup.Seal(t.Context(), to, m, backup.ID(1)); err != nil {
		t.Fatal(err)
	}
	return to, m
}

// TestWhole: a value in parts is put together from the pieces that its parts are in, and one of which a part is missing is not.
func TestWhole(t *testing.T) {
	const partLen, total = 1 << 20, 21<<20 + 7
	value := make([]byte, total)
	for i := range value {
		value[i] = byte(i * 7 >> 3)
	}
	h := layout.Head{ID: layout.UploadID{3}, Shape: layout.Shape{Total: total, PartLen: partLen}}
	keys, ok := layout.NewPartKeys(h.ID, func(key []byte) bool { return cluster.ShardOf(key, 1) == 0 })
	if !ok {
		t.Fatal("no keys")
	}
	var records []backup.Record
	for n := 1; n <= h.Parts(); n++ {
		off, length := h.Part(n)
		part := value[off : off+int64(length)]
		h.Sums = append(h.Sums, xxh3.Hash(part))
		records = append(records, backup.Record{Key: keys.Key(n), Value: part})
	}
	head := layout.AppendHead(nil, h)
	from, m := backupOf(t, records)
	if len(m.Pieces) < 2 {
		t.Fatalf("%d pieces", len(m.Pieces))
	}
	w, err := newWhole(t.Context(), from, m, 0, head)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(w); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for name, spoil := range map[string]func([]backup.Record) []backup.Record{
		"the first": func(l []backup.Record) []backup.Record { return l[1:] },
		"the last":  func(l []backup.Record) []backup.Record { return l[:len(l)-1] },
		"one":       func(l []backup.Record) []backup.Record { return append(l[:7:7], l[8:]...) },
		"half of one": func(l []backup.Record) []backup.Record {
			l[3].Value = l[3].Value[:100]
			return l
		},
	} {
		from, m := backupOf(t, spoil(append([]backup.Record(nil), records...)))
		w, err := newWhole(t.Context(), from, m, 0, head)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(w); !errors.Is(err, backup.ErrPiece) {
			t.Errorf("%s is missing: %v", name, err)
		}
	}
	if _, err := newWhole(t.Context(), from, m, 0, head[:50]); !errors.Is(err, backup.ErrPiece) {
		t.Errorf("half a head: %v", err)
	}
}

// TestVerify: list and verify tell of what a place has, as JSON, too; a backup that is damaged fails, and how many of its pieces are is told.
func TestVerify(t *testing.T) {
	var records []backup.Record
	for i := range 9 {
		records = append(records, backup.Record{Key: []byte{'k', byte('0' + i)}, Value: bytes.Repeat([]byte{byte(i)}, 3<<20)})
	}
	from, m := backupOf(t, records)
	var out bytes.Buffer
	a := &app.App{Stdout: &out, Stderr: io.Discard, Output: "json"}
	var all []listed
	if err := list(t.Context(), a, from); err != nil || json.Unmarshal(out.Bytes(), &all) != nil || len(all) != 1 || all[0].Keys != 9 || all[0].Pieces != len(m.Pieces) {
		t.Errorf("%s, %v", &out, err)
	}
	check := func() (v verified, err error) {
		out.Reset()
		err = verify(t.Context(), a, from, "")
		if bad := json.Unmarshal(out.Bytes(), &v); bad != nil {
			t.Errorf("%s: %v", &out, bad)
		}
		return v, err
	}
	if v, err := check(); err != nil || v.Damaged != 0 || v.Pieces != int64(len(m.Pieces)) || v.Backup != backup.ID(1) {
		t.Errorf("%+v, %v", v, err)
	}
	for n, i := range []int{0, len(m.Pieces) - 1} {
		if err := from.Put(t.Context(), m.Pieces[i].Sum().Name(), []byte("damaged")); err != nil {
			t.Fatal(err)
		}
		if v, err := check(); !errors.Is(err, errDamaged) || v.Damaged != int64(n+1) || v.Pieces != int64(len(m.Pieces)) || v.Why == "" {
			t.Errorf("%+v, %v", v, err)
		}
	}
}

// TestLeftOut: spaces of tenants, which no backup has, are told in one line, with where they are; so are nodes that have not told of any.
func TestLeftOut(t *testing.T) {
	for text, want := range map[string]string{
		`[{"name":"main","space":"main"},{"name":"clerk","space":"main","prefix":"desk/"}]`: "",
		`[{"space":"main"},{"space":"bob"},{"space":"alice"},{"space":"alice"}]`:            "alice bob",
		`[]`: "", `{}`: "bad", `[{"space":7}]`: "bad", "": "bad",
	} {
		names, ok := spacesIn([]byte(text))
		if got := strings.Join(names, " "); ok != (want != "bad") || ok && got != want {
			t.Errorf("%s: %q, %v", text, got, ok)
		}
	}
	for _, tc := range []struct {
		found  []space
		silent []string
		want   []string
	}{
		{nil, nil, nil},
		{[]space{{"n1", "bob"}, {"n1", "alice\x1b"}, {"n2", "bob"}}, nil, []string{"not in this backup", `"alice\x1b" (at n1), "bob" (at n1, n2)`, "kvserver backup --all"}},
		{nil, []string{"n3", "n4"}, []string{"was not heard of n3, n4"}},
		{[]space{{"n1", "bob"}}, []string{"n3"}, []string{"not in this backup", "; whether", "n3"}},
	} {
		text := leftOut(tc.found, tc.silent)
		if (text == "") != (tc.want == nil) || strings.ContainsAny(text, "\n\x1b") {
			t.Errorf("%v, %v: %q", tc.found, tc.silent, text)
		}
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v, %v: %q has no %q", tc.found, tc.silent, text, want)
			}
		}
	}
}

// TestOneLine: whatever somebody else's error says is one line that makes a terminal do nothing.
func TestOneLine(t *testing.T) {
	cause := errors.Join(errors.New("one\x1b[2J\ttwo"), errDamaged, errors.New(strings.Repeat("long ", 1000)))
	err := oneLine(cause)
	if text := err.Error(); strings.ContainsAny(text, "\n\t\x1b") || len(text) > mostLine+4 || !strings.HasPrefix(text, "one?[2J two the backup is damaged") || !errors.Is(err, errDamaged) {
		t.Errorf("%q", text)
	}
	if err := oneLine(nil); err != nil {
		t.Error(err)
	}
	if err := cli.Usagef("x\ny"); oneLine(err) != err {
		t.Error("wrong usage is told otherwise")
	}
}
