package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

const (
	backupWriters = 4
	backupKeys    = 100 // of each writer, some in blob files
	stillOnes     = 500 // keys that are not written during the backup
)

func backupKey(w, i int) []byte { return fmt.Appendf(nil, "writer %d key %03d", w, i) }

// TestBackupAndRestore backs up a node under a load of puts with kvserver, then
// restores into a new node: what was there before is equal, key by key; of each
// key that was written meanwhile there is a value not older than what was
// acknowledged before the backup began, and a client's later writes of one key
// are there only if all its earlier ones are. The node is then killed, checked
// and backed up stopped, too.
func TestBackupAndRestore(t *testing.T) {
	if elsewhere != nil {
		t.Skip("backups are made on the node's own machine")
	}
	dir := filepath.Join(t.TempDir(), "store")
	n := startNode(t, dir)
	c := dial(t, n)
	still := func(i int) (key, value []byte) {
		key = fmt.Appendf(nil, "still %04d", i)
		return key, appendRecord(nil, key, uint64(i), 32+i*3)
	}
	for i := range stillOnes {
		if err := c.Put(t.Context(), key1(still(i)), value1(still(i))); err != nil {
			t.Fatal(err)
		}
	}
	gone := []byte("deleted before the backup")
	if err := c.Put(t.Context(), gone, []byte("v")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	// Each writer writes its keys round after round: the sequence is the round.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var acked [backupWriters][backupKeys]atomic.Uint64
	var puts atomic.Int64
	ended := make(chan struct{}, backupWriters)
	for w := range backupWriters {
		go func() {
			defer func() { ended <- struct{}{} }()
			for seq := uint64(1); ; seq++ {
				for i := range backupKeys {
					key := backupKey(w, i)
					err := c.Put(ctx, key, appendRecord(nil, key, seq, 40+i*20))
					if ctx.Err() != nil {
						return
					}
					if err != nil {
						t.Errorf("put: %v", err)
						return
					}
					acked[w][i].Store(seq)
					puts.Add(1)
				}
			}
		}()
	}
	begun := time.Now()
	for puts.Load() < 2*backupWriters*backupKeys {
		if time.Since(begun) > time.Minute {
			t.Fatal("there is no load")
		}
		time.Sleep(5 * time.Millisecond)
	}
	var before [backupWriters][backupKeys]uint64
	for w := range before {
		for i := range before[w] {
			before[w][i] = acked[w][i].Load()
		}
	}
	dest := filepath.Join(t.TempDir(), "backup")
	from := puts.Load()
	if r := runProgram(t, nil, nil, "kvserver", "backup", "--data-dir", dir, dest); r.code != 0 || !strings.Contains(r.stderr, "copied") {
		t.Fatalf("backup: code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	during := puts.Load() - from
	cancel()
	for range backupWriters {
		<-ended
	}
	if t.Failed() {
		return
	}
	t.Logf("%d puts were acknowledged while the backup was made", during)
	if during == 0 {
		t.Error("there was no load during the backup")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "backup-*")); len(left) > 0 {
		time.Sleep(time.Second) // the server removes it when the tool has gone
		if left, _ = filepath.Glob(filepath.Join(dir, "backup-*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "control.sock")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the control socket: %v, %v", info, err)
	}

	if r := runProgram(t, nil, nil, "kvserver", "check", dest); r.code != 0 || !strings.Contains(r.stdout, "problems   0") {
		t.Fatalf("check of the backup: code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	fresh := filepath.Join(t.TempDir(), "restored")
	if r := runProgram(t, nil, nil, "kvserver", "restore", "--data-dir", fresh, dest); r.code != 0 || !strings.Contains(r.stderr, "restored as store") {
		t.Fatalf("restore: code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := runProgram(t, nil, nil, "kvserver", "restore", "--data-dir", fresh, dest); r.code == 0 {
		t.Error("restored over a store")
	}
	compare := func(c *client.Client, exact bool) {
		t.Helper()
		for i := range stillOnes {
			key, want := still(i)
			if got, err := c.Get(t.Context(), key); err != nil || string(got) != string(want) {
				t.Fatalf("%s: %d bytes, %v; want %d bytes", key, len(got), err, len(want))
			}
		}
		if _, err := c.Get(t.Context(), gone); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("a deleted key: %v", err)
		}
		for w := range backupWriters {
			last := ^uint64(0)
			first := uint64(0)
			for i := range backupKeys {
				got, err := c.Get(t.Context(), backupKey(w, i))
				if err != nil {
					t.Fatal(err)
				}
				seq, err := parseRecord(backupKey(w, i), got)
				if err != nil || seq < before[w][i] || exact && seq != acked[w][i].Load() && seq != acked[w][i].Load()+1 {
					t.Fatalf("%s: sequence %d, %v; %d was acknowledged before, %d at the end", backupKey(w, i), seq, err, before[w][i], acked[w][i].Load())
				}
				// The writer waits for each answer: one state has a round's
				// keys up to some key, and the round before behind it.
				if i == 0 {
					first = seq
				}
				if seq > last || seq+1 < first {
					t.Errorf("writer %d: key %d has sequence %d, the one before it %d: no state that ever was", w, i, seq, last)
				}
				last = seq
			}
		}
	}
	m := startNode(t, fresh)
	compare(dial(t, m), false)
	if _, err := m.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}

	// A stopped store, and one that was killed, are copied as well.
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	if r := runProgram(t, nil, nil, "kvserver", "check", dir); r.code != 0 {
		t.Fatalf("check of the killed store: code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	second := filepath.Join(t.TempDir(), "second")
	if r := runProgram(t, nil, nil, "kvserver", "backup", "--data-dir", dir, second); r.code != 0 || !strings.Contains(r.stderr, "no server runs") {
		t.Fatalf("backup of a killed store: code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	compare(dial(t, startNode(t, second)), true)

	// A damaged backup is not restored.
	manifests, err := filepath.Glob(filepath.Join(dest, "data", "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatal(manifests, err)
	}
	data, err := os.ReadFile(manifests[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 0x40
	if err := os.WriteFile(manifests[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := runProgram(t, nil, nil, "kvserver", "check", dest); r.code != 1 || !strings.Contains(r.stderr, "MANIFEST") {
		t.Errorf("check of a damaged backup: code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := runProgram(t, nil, nil, "kvserver", "restore", "--data-dir", filepath.Join(t.TempDir(), "never"), dest); r.code != 1 {
		t.Errorf("restore of a damaged backup: code %d: %s", r.code, r.stderr)
	}
}

func key1(key, _ []byte) []byte     { return key }
func value1(_, value []byte) []byte { return value }
