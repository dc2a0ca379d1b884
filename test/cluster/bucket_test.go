package cluster

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/backup"
	"github.com/rdmakv/rdmakv/test/node"
	"github.com/rdmakv/rdmakv/test/s3"
)

// Backups in a bucket. The server can hold requests up, so what happens to a cluster in the middle of a backup or of a restore happens there however
// slow or fast the machine is.

// A bucket is one of an S3 server on the loopback address of east.
type bucket struct {
	*s3.Server
	w   *world
	env []string // what kvclient needs to reach it
}

const nightly = "s3://" + s3.Bucket + "/nightly"

// bucket starts the server, which has the objects of another one if there is one.
func (w *world) bucket(t *testing.T, o s3.Options) *bucket {
	t.Helper()
	ln, err := w.net.Host("east").Listen()
	must(t, err)
	o.Listener = ln
	b := &bucket{Server: s3.Start(t, o), w: w}
	b.env = []string{"AWS_ACCESS_KEY_ID=" + s3.Key, "AWS_SECRET_ACCESS_KEY=" + s3.Secret, "AWS_ENDPOINT_URL_S3=" + b.URL}
	if o.TLS {
		ca := filepath.Join(t.TempDir(), "ca.pem")
		must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw}), 0o600))
		b.env = append(b.env, "SSL_CERT_FILE="+ca)
	}
	return b
}

// begins starts a command of cluster on east. Variables come behind those that it needs, and win.
func (b *bucket) begins(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	r := &running{}
	p, err := b.w.net.Host("east").On().Start(node.Command{
		Path: path.Join(b.w.opt.Bin, "kvclient"), Args: b.w.asked(append([]string{"--timeout", "30s", "cluster"}, args...)...),
		Env: append(append([]string{"RDMAKV_FABRIC=" + b.w.opt.Fabric, "RDMAKV_SECRET_FILE=" + b.w.seen(b.w.SecretFile())}, b.env...), env...), Stdout: &r.out, Stderr: &r.errOut,
	})
	must(t, err)
	r.Process = p
	return r
}

// run runs one to its end, which must be a good one, and decodes what it prints.
func (b *bucket) run(t *testing.T, into any, args ...string) (stderr string) {
	t.Helper()
	r := b.begins(t, nil, append(args, "-o", "json")...)
	if code := r.ends(t); code != 0 {
		t.Fatalf("%q: exit code %d\n%s%s", args, code, &r.out, &r.errOut)
	}
	if err := json.Unmarshal(r.out.Bytes(), into); err != nil {
		t.Fatalf("%q: %v: %s", args, err, &r.out)
	}
	t.Logf("%q: %+v\n%s", args, into, &r.errOut)
	return r.errOut.String()
}

var progressLine = regexp.MustCompile(`^(copied|verified|restored|compared) [0-9,]+ keys`)

// fails runs one that must fail, twice, with an exit code and, beside those that say how far it came, one line that has the words and no secret.
func (b *bucket) fails(t *testing.T, env []string, code int, words string, args ...string) {
	t.Helper()
	for range 2 {
		r := b.begins(t, env, args...)
		got := r.ends(t)
		text, lines := r.errOut.String(), 0
		for line := range strings.Lines(text) {
			if !progressLine.MatchString(line) {
				lines++
			}
		}
		if got != code || lines != 1 || !strings.Contains(text, words) || strings.Contains(text, s3.Secret) {
			t.Errorf("%q, %q ends with %d, want %d and one line with %q:\n%s%s", env, args, got, code, words, &r.out, text)
		}
	}
}

// pieces says of a request whether it is of a piece, by one of some methods.
func pieces(methods ...string) func(method, name string) bool {
	return func(method, name string) bool {
		return strings.HasPrefix(name, "nightly/pieces/") && strings.Contains(strings.Join(methods, " "), method)
	}
}

// awaits waits until so many requests are held up.
func awaits(t *testing.T, held <-chan string, n int) {
	t.Helper()
	for ctx := within(t); n > 0; n-- {
		select {
		case <-held:
		case <-ctx.Done():
			t.Fatalf("%d more requests should come", n)
		}
	}
}

// TestBackupBucket: a cluster is backed up to a bucket while its nodes come, go and are killed, incrementally, and restored from there into another one, whose nodes are
// killed, as kvclient is, in the middle of it. All are real processes but the S3 server.
func TestBackupBucket(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real nodes, of two clusters: make cluster-test")
	}
	parallel(t)
	w := founded(t)
	b := w.bucket(t, s3.Options{TLS: true})
	values := make(map[string][]byte)
	c := w.dial("west")
	put := func(key string, size int) {
		values[key] = bytes.Repeat([]byte(key), size/len(key)+1)
		must(t, c.Put(within(t), []byte(key), values[key]))
	}
	for i := range 300 {
		put(fmt.Sprint("small ", i), 200)
	}
	for i := range 24 {
		put(fmt.Sprint("large ", i), 1<<20)
	}
	step := func(name string, f func(*testing.T)) {
		if !t.Run(name, f) {
			t.FailNow()
		}
	}
	step("wrong", func(t *testing.T) { wrongBuckets(t, b) })
	step("a leader is killed", func(t *testing.T) { leaderKilled(t, b) })
	step("nodes come and go", func(t *testing.T) { backupWhileChanging(t, b) })
	step("incremental", func(t *testing.T) {
		var r taken
		b.run(t, &r, "backup", nightly)
		if r.Written != 0 || r.Mended != 0 || r.Keys != int64(len(values)) {
			t.Errorf("nothing was written since: %+v", r)
		}
		put("small 7", 300)
		put("large 3", 1<<20)
		put("new", 100)
		b.run(t, &r, "backup", nightly)
		if r.Written < 1 || r.Written > 3 || r.Keys != int64(len(values)) {
			t.Errorf("three keys were written since: %+v", r)
		}
	})
	step("damaged", func(t *testing.T) { damagedBucket(t, b) })
	step("restored", func(t *testing.T) { restoredFrom(t, b, values) })
}

// wrongBuckets: what cannot be a place in a bucket is told in one line.
func wrongBuckets(t *testing.T, b *bucket) {
	for _, tc := range []struct {
		words string
		env   []string
		code  int
		args  []string
	}{
		{"does not take these credentials", []string{"AWS_ACCESS_KEY_ID=unknown"}, 1, []string{nightly}},
		{"does not take these credentials", []string{"AWS_ACCESS_KEY_ID=" + s3.BadSecret}, 1, []string{nightly}},
		{"does not take these credentials", []string{"AWS_ACCESS_KEY_ID=" + s3.Poor}, 1, []string{nightly}},
		{"there are no credentials", []string{"AWS_ACCESS_KEY_ID=", "HOME=/", "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:1"}, 1, []string{nightly}},
		{"there is no bucket", nil, 1, []string{"s3://none/nightly"}},
		{"certificate", []string{"SSL_CERT_FILE=/dev/null"}, 1, []string{nightly}},
		{"HTTP", nil, 1, []string{nightly, "--s3-endpoint", strings.Replace(b.URL, "https", "http", 1)}},
		{"refused", nil, 1, []string{nightly, "--s3-endpoint", "https://127.0.0.1:1"}},
		{"s3://BUCKET/PREFIX", nil, 1, []string{"s3://id:" + s3.Secret + "@bucket/x"}},
		{"endpoint", nil, 1, []string{nightly, "--s3-endpoint", "https://id:" + s3.Secret + "@127.0.0.1"}},
	} {
		for _, command := range []string{"backup", "restore", "verify"} {
			b.fails(t, tc.env, tc.code, tc.words, append([]string{command}, tc.args...)...)
		}
	}
	b.fails(t, nil, 1, "has no backups", "restore", nightly)
	b.fails(t, nil, 1, "has no backups", "verify", nightly)
	b.fails(t, nil, 1, "has no backups", "backups", "list", nightly)
	b.fails(t, []string{"RDMAKV_SECRET_FILE=" + os.DevNull}, 2, "secret", "backup", nightly)
	if names := b.Names(""); len(names) > 0 {
		t.Errorf("%v were written", names)
	}
}

// leaderKilled: the leader of a group goes when its copy is begun and none of its pieces is written. The group is copied anew, from the next leader.
func leaderKilled(t *testing.T, b *bucket) {
	leader := b.w.Node(b.w.groups(b.w.Nodes[0])[0].Leader)
	held, release := b.Hold(pieces("PUT"))
	r := b.begins(t, nil, "backup", nightly, "-o", "json")
	awaits(t, held, 2) // of two groups that are copied side by side, of which the first is one
	must(t, leader.Kill())
	release()
	var first taken
	if code := r.ends(t); code != 0 || json.Unmarshal(r.out.Bytes(), &first) != nil {
		t.Fatalf("exit code %d: %s%s", code, &r.out, &r.errOut)
	}
	t.Logf("%+v\n%s", first, &r.errOut)
	if first.Again == 0 || first.Written == 0 || first.LeftOut != nil {
		t.Errorf("%+v", first)
	}
	if text := r.errOut.String(); strings.Contains(text, "kvserver backup --all") {
		t.Errorf("there is no space of a tenant: %s", text)
	}
	// It comes back with a tenant that has a space of its own, which no backup of the cluster has.
	secret, tenants := filepath.Join(b.w.dir, "alice.secret"), filepath.Join(b.w.dir, "tenants.yaml")
	must(t, os.WriteFile(secret, []byte("Yq8xkQ3vT1mW5zR7bN2cL9dF"), 0o600))
	must(t, os.WriteFile(tenants, []byte("tenants:\n  - name: alice\n    secret_file: alice.secret\n    memory_limit: 64MiB\n"), 0o600))
	must(t, leader.Start(within(t), "--tenants-file", tenants))
	b.w.allTakePart(t)
	var second taken
	if text := b.run(t, &second, "backup", nightly); !strings.Contains(text, "not in this backup: the spaces of tenants \"alice\" (at "+leader.ID+")") || len(second.LeftOut) != 1 {
		t.Errorf("%+v: %s", second, text)
	}
	must(t, leader.Kill())
	must(t, leader.Start(within(t)))
	b.w.allTakePart(t)
	if second.Written != 0 || second.Pieces != first.Pieces {
		t.Errorf("nothing was written since: %+v", second)
	}
}

// backupWhileChanging: nodes come, and the one from which a group is copied goes, while it is copied: the backup is whole, whether a copy went on or was begun anew.
func backupWhileChanging(t *testing.T, b *bucket) {
	w := b.w
	before := w.tasks(t).MapVersion
	leader := w.groups(w.Nodes[0])[0].Leader
	held, release := b.Hold(pieces("HEAD"))
	r := b.begins(t, nil, "backup", nightly, "-o", "json")
	awaits(t, held, 2)
	w.changes(t, "add", "n4", "n5")
	w.changes(t, "remove", leader)
	release()
	var got taken
	if code := r.ends(t); code != 0 || json.Unmarshal(r.out.Bytes(), &got) != nil {
		t.Fatalf("exit code %d: %s%s", code, &r.out, &r.errOut)
	}
	if t.Logf("%+v\n%s", got, &r.errOut); got.Written != 0 {
		t.Errorf("nothing was written since: %+v", got)
	}
	if after := w.tasks(t).MapVersion; after == before {
		t.Errorf("the map is of version %d, as before", after)
	}
	b.run(t, new(any), "verify", nightly)
}

// damagedBucket: a piece that somebody has written over is written again by the next backup, and found by verify before that; one that the server's disk has damaged
// is found by verify.
func damagedBucket(t *testing.T, b *bucket) {
	m, err := b.newest(t)
	must(t, err)
	piece := "nightly/" + m.Pieces[len(m.Pieces)/2].Sum().Name()
	b.Damage(piece)
	b.fails(t, nil, 1, "the backup is damaged: 1 of", "verify", nightly)
	var r taken
	b.run(t, &r, "backup", nightly)
	if r.Written != 1 || r.Mended != 1 {
		t.Errorf("a damaged piece: %+v", r)
	}
	b.run(t, new(any), "verify", nightly)
	b.Remove(piece)
	b.fails(t, nil, 1, "the backup is damaged: 1 of", "verify", nightly)
	if b.run(t, &r, "backup", nightly); r.Written != 1 || r.Mended != 0 {
		t.Errorf("a piece that is gone: %+v", r)
	}
	other := "nightly/" + m.Pieces[0].Sum().Name()
	b.Rot(other)
	b.fails(t, nil, 1, "the backup is damaged: 1 of", "verify", nightly)
	b.Damage(other)
	if b.run(t, &r, "backup", nightly); r.Mended != 1 {
		t.Errorf("a damaged piece: %+v", r)
	}
	b.run(t, new(any), "verify", nightly)
}

// newest is the manifest of the newest backup.
func (b *bucket) newest(t *testing.T) (*backup.Manifest, error) {
	t.Helper()
	names := b.Names("nightly/backups/")
	if len(names) == 0 {
		return nil, errors.New("there is no backup")
	}
	return backup.Parse(b.Object(names[len(names)-1]))
}

// restoredFrom restores the newest backup into another cluster, of five nodes: kvclient is killed, then interrupted, then a node is.
func restoredFrom(t *testing.T, from *bucket, values map[string][]byte) {
	w := newWorld(t, func(o *Options) { o.Args = append(o.Args, "--shards", "64") })
	for _, name := range []string{"spare", "fifth"} {
		w.Nodes = append(w.Nodes, w.NewServer(fmt.Sprint("n", len(w.Nodes)+1), w.net.Host(name)))
	}
	must(t, w.Start(within(t)))
	w.must("east", "--server", w.Nodes[0].Addr(), "cluster", "init", "--replicas", "3", "n1", "n2", "n3", "n4", "n5")
	b := w.bucket(t, s3.Options{Of: from.Server})
	c := w.dial("west")
	restore := []string{"restore", nightly, "--workers", "1"}

	// One piece is restored, the second is being read.
	several := func(n int) (<-chan string, func()) {
		of := pieces("GET")
		return b.Hold(func(method, name string) bool {
			if of(method, name) {
				n--
			}
			return of(method, name) && n < 0
		})
	}
	held, release := several(3)
	r := b.begins(t, nil, restore...)
	awaits(t, held, 1)
	must(t, r.Signal(syscall.SIGKILL))
	if code := r.ends(t); code != -1 || strings.Contains(r.out.String(), "restored") {
		t.Errorf("killed: exit code %d: %s", code, &r.out)
	}
	release()
	b.fails(t, nil, 1, "the cluster has keys, and a backup is restored into an empty one: make a new cluster, or say --continue", restore...)

	held, release = several(6)
	r = b.begins(t, nil, append(restore, "--continue")...)
	awaits(t, held, 1)
	must(t, r.Signal(syscall.SIGINT))
	if code := r.ends(t); code != 130 || strings.Contains(r.out.String(), "restored") || !strings.Contains(r.errOut.String(), "--continue --backup") {
		t.Errorf("interrupted: exit code %d: %s%s", code, &r.out, &r.errOut)
	}
	release()

	held, release = several(6)
	r = b.begins(t, nil, append(restore, "--continue", "-o", "json")...)
	awaits(t, held, 1)
	must(t, w.Nodes[1].Kill())
	release()
	var got struct{ Keys, Compared, Found int64 }
	if code := r.ends(t); code != 0 || json.Unmarshal(r.out.Bytes(), &got) != nil {
		t.Fatalf("a node is killed: exit code %d: %s%s", code, &r.out, &r.errOut)
	}
	if want := int64(len(values)); got.Keys < want || got.Compared != want || got.Found != want {
		t.Errorf("%+v, want %d keys", got, want)
	}
	must(t, w.Nodes[1].Start(within(t)))
	for key, value := range values {
		if got, err := c.Get(within(t), []byte(key)); err != nil || !bytes.Equal(got, value) {
			t.Errorf("key %q: %d bytes, %v; want %d bytes", key, len(got), err, len(value))
		}
	}
	if _, err := c.Get(within(t), []byte("none")); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
	w.allTakePart(t)
	w.alikeFrom(t, w.net.Host("east"), len(w.groups(w.Nodes[0])))
	b.fails(t, nil, 1, "the cluster has keys", restore...)

	// A restore that ends before it is whole, because pieces are missing, says so.
	m, err := from.newest(t)
	must(t, err)
	b.Remove("nightly/" + m.Pieces[len(m.Pieces)/2].Sum().Name())
	b.fails(t, nil, 1, "not all is restored: --continue --backup", append(restore, "--continue")...)
}
