package backup

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// targets calls f for a target of each kind, which is empty.
func targets(t *testing.T, f func(t *testing.T, target Target)) {
	t.Run("directory", func(t *testing.T) {
		d, err := OpenDir(filepath.Join(t.TempDir(), "new"), true)
		if err != nil {
			t.Fatal(err)
		}
		f(t, d)
	})
	t.Run("s3", func(t *testing.T) {
		s, err := OpenS3(t.Context(), "s3://bucket/a/prefix/", S3Options{Endpoint: s3Server(t)})
		if err != nil {
			t.Fatal(err)
		}
		f(t, s)
	})
}

// s3Server is the endpoint of an S3 server in this process, which has the bucket "bucket".
func s3Server(t *testing.T) string {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "an-id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a-secret-word")
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestTargets: what was put is there, whole, under its name, and what was not is not.
func TestTargets(t *testing.T) {
	targets(t, func(t *testing.T, target Target) {
		ctx := t.Context()
		if _, err := target.Size(ctx, "pieces/ab/x"); !errors.Is(err, ErrNoObject) {
			t.Error(err)
		}
		if _, err := target.Get(ctx, "pieces/ab/x", 10); !errors.Is(err, ErrNoObject) {
			t.Error(err)
		}
		if names, err := target.List(ctx, "backups/", 10); err != nil || len(names) != 0 {
			t.Error(names, err)
		}
		data := bytes.Repeat([]byte("0123456789"), 100_000)
		for _, name := range []string{"pieces/ab/x", "pieces/ab/y", "pieces/cd/z", "mark"} {
			for range 2 {
				if err := target.Put(ctx, name, data); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, size := range []int{mostBytes - 1, mostBytes + 1, mostBytes + 5<<20} { // clients of buckets cut objects above 16 MiB into parts
			long := bytes.Repeat([]byte("long"), size/4+1)[:size]
			if err := target.Put(ctx, "long", long); err != nil {
				t.Fatal(err)
			}
			n, err := target.Size(ctx, "long")
			b, e := target.Get(ctx, "long", MaxPiece)
			if n != int64(size) || !bytes.Equal(b, long) || err != nil || e != nil {
				t.Errorf("%d bytes were put: %d are there, and %d were read: %v, %v", size, n, len(b), err, e)
			}
		}
		if n, err := target.Size(ctx, "pieces/ab/y"); err != nil || n != int64(len(data)) {
			t.Error(n, err)
		}
		if b, err := target.Get(ctx, "pieces/cd/z", int64(len(data))); err != nil || !bytes.Equal(b, data) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		if _, err := target.Get(ctx, "pieces/cd/z", int64(len(data))-1); !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
		for prefix, want := range map[string][]string{"pieces/ab/": {"pieces/ab/x", "pieces/ab/y"}, "": {"long", "mark", "pieces/ab/x", "pieces/ab/y", "pieces/cd/z"}, "none/": nil} {
			if names, err := target.List(ctx, prefix, 10); err != nil || !slices.Equal(names, want) {
				t.Errorf("%q: %v, %v", prefix, names, err)
			}
		}
		if names, err := target.List(ctx, "pieces/", 2); err != nil || len(names) != 2 {
			t.Error(names, err)
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		if err := target.Put(over, "late", data); err == nil {
			t.Error("written when it was over")
		}
	})
}

// TestBackups: a backup is there when it is sealed and not before, the newest one is found, and what a target has already is not written again.
func TestBackups(t *testing.T) {
	targets(t, func(t *testing.T, target Target) {
		ctx := t.Context()
		id := "000102030405060708090a0b0c0d0e0f"
		if _, _, err := Load(ctx, target, ""); !errors.Is(err, ErrTarget) {
			t.Errorf("an empty target: %v", err)
		}
		if err := Claim(ctx, target, id, true); err != nil {
			t.Fatal(err)
		}
		if names, _ := target.List(ctx, "", 1); len(names) != 0 {
			t.Errorf("a dry run has written %v", names)
		}
		for range 2 {
			if err := Claim(ctx, target, id, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := Claim(ctx, target, "ff0102030405060708090a0b0c0d0e0f", false); !errors.Is(err, ErrTarget) {
			t.Errorf("another cluster: %v", err)
		}
		p := cut(recordsOf(3, 10))[0]
		for i, want := range []bool{true, true, false} {
			if written, err := Keep(ctx, target, p, i == 0); err != nil || written != want {
				t.Errorf("%d: %v, %v", i, written, err)
			}
		}
		if err := target.Put(ctx, p.Sum.Name(), p.Bytes[:5]); err != nil {
			t.Fatal(err)
		}
		if written, err := Keep(ctx, target, p, false); err != nil || !written {
			t.Errorf("one of another size: %v, %v", written, err)
		}
		if _, _, err := Load(ctx, target, ""); !errors.Is(err, ErrNoBackup) {
			t.Errorf("nothing is sealed: %v", err)
		}
		e := Entry{Shard: 0, Piece: p.Sum.String(), Bytes: int64(len(p.Bytes)), Keys: p.Keys, First: p.First}
		for _, began := range []int64{1000, 500, 2000} {
			m := manifestOf(e)
			m.Began = began
			if err := Seal(ctx, target, m, ID(began)); err != nil {
				t.Fatal(err)
			}
			if err := Seal(ctx, target, m, ID(began)); !errors.Is(err, ErrTarget) {
				t.Errorf("sealed twice: %v", err)
			}
		}
		m, got, err := Load(ctx, target, "")
		if err != nil || m.Began != 2000 || got != "19700101T000002.000Z" {
			t.Errorf("%v, %q, %v", m, got, err)
		}
		if m, _, err := Load(ctx, target, ID(500)); err != nil || m.Began != 500 {
			t.Error(m, err)
		}
		if _, _, err := Load(ctx, target, "../x"); !errors.Is(err, ErrNoBackup) {
			t.Error(err)
		}
		n := 0
		if err := Read(ctx, target, &m.Pieces[0], func(Record) error { n++; return nil }); err != nil || n != 3 {
			t.Error(n, err)
		}
		if err := target.Put(ctx, p.Sum.Name(), append([]byte{1}, p.Bytes[1:]...)); err != nil {
			t.Fatal(err)
		}
		if err := Read(ctx, target, &m.Pieces[0], func(Record) error { return nil }); !errors.Is(err, ErrPiece) {
			t.Errorf("a damaged piece: %v", err)
		}
		if err := target.Put(ctx, "backups/"+ID(3000), []byte("nonsense\n")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(ctx, target, ""); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), ID(3000)) {
			t.Errorf("a damaged manifest: %v", err)
		}
	})
}

// TestClaimed: a place that has something else is not taken.
func TestClaimed(t *testing.T) {
	targets(t, func(t *testing.T, target Target) {
		if err := target.Put(t.Context(), "photos/1.jpg", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := Claim(t.Context(), target, "00", false); !errors.Is(err, ErrTarget) || !strings.Contains(err.Error(), "photos/1.jpg") {
			t.Error(err)
		}
		for text, want := range map[string]error{" ": ErrTarget, "{}": ErrTarget, `{"format":"rdmakv cluster backups","version":2}`: ErrVersion} {
			if err := target.Put(t.Context(), MarkName, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if err := Claim(t.Context(), target, "00", false); !errors.Is(err, want) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// TestWrongPlaces: what is no directory and no bucket is told in one line, which has no secret.
func TestWrongPlaces(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below"), filepath.Join(dir, "none", "below")} {
		if _, err := OpenDir(path, true); !errors.Is(err, ErrTarget) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := OpenDir(filepath.Join(dir, "none"), false); !errors.Is(err, ErrTarget) {
		t.Error(err)
	}
	end := s3Server(t)
	for _, tc := range [][2]string{
		{"s3://", end}, {"s3:///x", end}, {"s3://none", end}, {"s3://bucket/x?y", end}, {"s3://id:word@bucket", end}, {"s3://bucket", "ftp://x"}, {"s3://bucket", "http://id:word@x"}, {"s3://bucket", "http://x/path"}, {"bucket", end},
	} {
		_, err := OpenS3(t.Context(), tc[0], S3Options{Endpoint: tc[1]})
		if !errors.Is(err, ErrTarget) || strings.Contains(err.Error(), "word") {
			t.Errorf("%v: %v", tc, err)
		}
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := OpenS3(ctx, "s3://bucket", S3Options{Endpoint: end})
	if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}
