package backup

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/test/s3"
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
	for name, o := range map[string]s3.Options{"s3": {}, "s3 with checksums": {Checksums: true}, "s3 with odd tags": {OddTags: true}} {
		t.Run(name, func(t *testing.T) {
			_, target := s3Target(t, o)
			f(t, target)
		})
	}
}

// s3Target is a target in a bucket of an S3 server in this process.
func s3Target(t *testing.T, o s3.Options) (*s3.Server, *S3) {
	t.Helper()
	srv := s3Server(t, o)
	target, err := OpenS3(t.Context(), "s3://bucket/a/prefix/", S3Options{Endpoint: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	return srv, target
}

// s3Server is an S3 server in this process, for which there are credentials.
func s3Server(t *testing.T, o s3.Options) *s3.Server {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", s3.Key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3.Secret)
	return s3.Start(t, o)
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
		for i, want := range []Kept{Added, Added, Reused} {
			if kept, err := Keep(ctx, target, p, i == 0); err != nil || kept != want {
				t.Errorf("%d: %v, %v", i, kept, err)
			}
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

// TestMended: a piece that is there and damaged is written again, whatever its size, and not before that with a dry run.
func TestMended(t *testing.T) {
	targets(t, func(t *testing.T, target Target) {
		ctx := t.Context()
		p := cut(recordsOf(3, 300<<10))[0]
		for _, data := range [][]byte{p.Bytes[:5], p.Bytes[:len(p.Bytes)-1], append([]byte{1}, p.Bytes[1:]...), append(bytes.Clone(p.Bytes[:len(p.Bytes)-1]), 1), append(bytes.Clone(p.Bytes), 0)} {
			if err := target.Put(ctx, p.Sum.Name(), data); err != nil {
				t.Fatal(err)
			}
			for i, want := range []Kept{Mended, Mended, Reused} {
				if kept, err := Keep(ctx, target, p, i == 0); err != nil || kept != want {
					t.Errorf("%d bytes, %d: %v, %v", len(data), i, kept, err)
				}
			}
			if b, err := target.Get(ctx, p.Sum.Name(), MaxPiece); err != nil || !bytes.Equal(b, p.Bytes) {
				t.Errorf("%d bytes were there: %d are there now, %v", len(data), len(b), err)
			}
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := Keep(over, target, p, false); !errors.Is(err, context.Canceled) {
			t.Errorf("when it was over: %v", err)
		}
	})
}

// TestBucketSame: whether a piece is there is asked of the server, and not read where its checksum tells; what its disk has made of the bytes is seen by who reads them.
func TestBucketSame(t *testing.T) {
	for name, tc := range map[string]struct {
		o     s3.Options
		reads int
	}{"MD5": {}, "SHA-256": {o: s3.Options{Checksums: true, OddTags: true}}, "neither": {o: s3.Options{OddTags: true}, reads: 1}} {
		srv, target := s3Target(t, tc.o)
		p := cut(recordsOf(3, 10))[0]
		if _, err := Keep(t.Context(), target, p, false); err != nil {
			t.Fatal(err)
		}
		before := srv.Requests(http.MethodGet)
		if kept, err := Keep(t.Context(), target, p, false); err != nil || kept != Reused || srv.Requests(http.MethodGet)-before != tc.reads {
			t.Errorf("%s: %v, %v, %d reads", name, kept, err, srv.Requests(http.MethodGet)-before)
		}
		e := Entry{Piece: p.Sum.String(), Bytes: int64(len(p.Bytes)), Keys: p.Keys, First: p.First}
		srv.Rot("a/prefix/" + p.Sum.Name())
		if err := Read(t.Context(), target, &e, func(Record) error { return nil }); !errors.Is(err, ErrPiece) {
			t.Errorf("%s: a piece whose disk is damaged: %v", name, err)
		}
		srv.Damage("a/prefix/" + p.Sum.Name())
		if kept, err := Keep(t.Context(), target, p, false); err != nil || kept != Mended {
			t.Errorf("%s: one that somebody has written: %v, %v", name, kept, err)
		}
	}
}

// TestCredentials: who has none, or wrong ones, is told so in one line without a secret, and a server that says nothing is not waited for for ever.
func TestCredentials(t *testing.T) {
	srv := s3Server(t, s3.Options{})
	for _, tc := range []struct{ key, say string }{{s3.BadSecret, "does not take these credentials"}, {s3.Poor, "does not take these credentials"}, {"unknown", "does not take these credentials"}, {"", "no credentials"}} {
		t.Setenv("AWS_ACCESS_KEY_ID", tc.key)
		t.Setenv("HOME", t.TempDir())
		t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", srv.URL) // instead of the address of a machine's role
		_, err := OpenS3(t.Context(), "s3://bucket/x", S3Options{Endpoint: srv.URL})
		if !errors.Is(err, ErrTarget) || !strings.Contains(err.Error(), tc.say) || strings.Contains(err.Error(), s3.Secret) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", tc.key, err)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", s3.Key)
	srv.Hold(func(string, string) bool { return true })
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if _, err := OpenS3(ctx, "s3://bucket/x", S3Options{Endpoint: srv.URL}); !errors.Is(err, context.Canceled) {
		t.Errorf("a server that says nothing: %v", err)
	}
}

// TestLinks: a directory that leads out of itself is neither written nor read through, and what is no file is not waited for.
func TestLinks(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	d, err := OpenDir(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	p := cut(recordsOf(3, 10))[0]
	name := p.Sum.Name()
	for _, from := range []string{"pieces", filepath.Dir(name), name} {
		if err := os.RemoveAll(filepath.Join(dir, "pieces")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, from)), 0o700), os.Symlink(out, filepath.Join(dir, from))); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(out, name)), 0o700), os.WriteFile(filepath.Join(out, filepath.Base(name)), p.Bytes, 0o600)); err != nil {
			t.Fatal(err)
		}
		if b, err := d.Get(t.Context(), name, MaxPiece); !errors.Is(err, ErrTarget) {
			t.Errorf("%s leads out: %d bytes, %v", from, len(b), err)
		}
		if _, err := Keep(t.Context(), d, p, false); !errors.Is(err, ErrTarget) {
			t.Errorf("%s leads out: %v", from, err)
		}
		if err := d.Put(t.Context(), filepath.Dir(name)+"/new", nil); from != name && !errors.Is(err, ErrTarget) {
			t.Errorf("%s leads out: %v", from, err)
		}
		if list, err := filepath.Glob(filepath.Join(out, "*", "new")); err != nil || len(list) > 0 {
			t.Errorf("%s leads out, and %v were written there: %v", from, list, err)
		}
	}
	pipe := filepath.Join(dir, MarkName)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MarkOf(t.Context(), d); !errors.Is(err, ErrTarget) {
		t.Errorf("a pipe: %v", err)
	}
}

// TestSealed: a place that became another cluster's while a backup was made gets no manifest of it.
func TestSealed(t *testing.T) {
	targets(t, func(t *testing.T, target Target) {
		m := manifestOf(entryOf(0, "a"))
		if err := Seal(t.Context(), target, m, ID(1)); !errors.Is(err, ErrTarget) {
			t.Errorf("a place without a mark: %v", err)
		}
		if err := Claim(t.Context(), target, "ff0102030405060708090a0b0c0d0e0f", false); err != nil {
			t.Fatal(err)
		}
		if err := Seal(t.Context(), target, m, ID(1)); !errors.Is(err, ErrTarget) {
			t.Errorf("another cluster's: %v", err)
		}
	})
}

// TestFirst: a piece that begins with another key than the manifest says is not that shard's.
func TestFirst(t *testing.T) {
	targets(t, func(t *testing.T, target Target) {
		p := cut(recordsOf(3, 10))[0]
		if _, err := Keep(t.Context(), target, p, false); err != nil {
			t.Fatal(err)
		}
		for first, want := range map[string]error{"key 00000000": nil, "key": ErrPiece, "key 00000001": ErrPiece} {
			e := Entry{Piece: p.Sum.String(), Bytes: int64(len(p.Bytes)), Keys: p.Keys, First: []byte(first)}
			n := 0
			if err := Read(t.Context(), target, &e, func(Record) error { n++; return nil }); !errors.Is(err, want) || want != nil && n > 0 {
				t.Errorf("%q: %v, %d records", first, err, n)
			}
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
	end := s3Server(t, s3.Options{}).URL
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
