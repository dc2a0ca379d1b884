package disk

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestLedgerCompared damages files of the base, each in a way that Pebble by itself may take for
// an older state, or does not look at: the ledger tells at the next start, and says of which file.
func TestLedgerCompared(t *testing.T) {
	manifest := func(t *testing.T, fs *crashfs.Disk) string {
		t.Helper()
		desc, err := pebble.Peek("/store/data", fs)
		if err != nil {
			t.Fatal(err)
		}
		return desc.ManifestFilename
	}
	options := func(t *testing.T, fs *crashfs.Disk) string {
		t.Helper()
		names, err := fs.List("/store/data")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "OPTIONS-") })
		if i < 0 {
			t.Fatalf("no OPTIONS in %q", names)
		}
		return "/store/data/" + names[i]
	}
	// change rewrites a file.
	change := func(t *testing.T, fs *crashfs.Disk, path string, how func([]byte) []byte) {
		t.Helper()
		b, err := readFile(fs, path)
		if err == nil {
			err = writeFile(fs, path, how(slices.Clone(b)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	for _, tc := range []struct {
		name    string
		crashed bool // or stopped
		damage  func(t *testing.T, fs *crashfs.Disk) (file string)
		says    string
	}{
		{"a byte of the manifest", false, func(t *testing.T, fs *crashfs.Disk) string {
			change(t, fs, manifest(t, fs), flip)
			return manifest(t, fs)
		}, "changed since the last clean stop"},
		{"a manifest that was cut", false, func(t *testing.T, fs *crashfs.Disk) string {
			change(t, fs, manifest(t, fs), cut)
			return manifest(t, fs)
		}, "at the last clean stop"},
		{"a file that is gone", false, func(t *testing.T, fs *crashfs.Disk) string {
			name := options(t, fs)
			if err := fs.Remove(name); err != nil {
				t.Fatal(err)
			}
			return name
		}, "missing since the last clean stop"},
		{"a byte of the synced manifest", true, func(t *testing.T, fs *crashfs.Disk) string {
			change(t, fs, manifest(t, fs), flip)
			return manifest(t, fs)
		}, "which were synced"},
		{"a synced manifest that was cut", true, func(t *testing.T, fs *crashfs.Disk) string {
			change(t, fs, manifest(t, fs), cut)
			return manifest(t, fs)
		}, "shorter than"},
		{"a manifest of which the ledger does not know", true, func(t *testing.T, fs *crashfs.Disk) string {
			text, err := readFile(fs, "/store/LEDGER")
			if err != nil {
				t.Fatal(err)
			}
			book, err := parseLedger(text)
			if err != nil || len(book.lines) == 0 {
				t.Fatalf("%s: %v", text, err)
			}
			book.lines = nil
			if err := writeLedger(testConfig(fs), book); err != nil {
				t.Fatal(err)
			}
			return manifest(t, fs)
		}, "the ledger does not know it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := crashfs.New()
			l := mustBegin(t, testConfig(fs))
			err := l.BoundClock(4)
			l.Heartbeat()
			if tc.crashed {
				err = errors.Join(err, l.crash())
			} else {
				err = errors.Join(err, l.stop(&End{}))
			}
			if err != nil {
				t.Fatal(err)
			}
			file := tc.damage(t, fs)
			_, _, err = begin(testConfig(fs))
			var corrupt *base.CorruptError
			if !errors.As(err, &corrupt) || fs.PathBase(corrupt.File) != fs.PathBase(file) || !strings.Contains(corrupt.Detail, tc.says) {
				t.Errorf("%v; want %s, %s", err, file, tc.says)
			}
		})
	}
}

// TestLedgerBeat: a store of an older format whose newest heartbeat is not there any more has
// lost the end of a log.
func TestLedgerBeat(t *testing.T) {
	for beats, lost := range map[uint64]bool{6: true, 7: false, 8: false} {
		if err := (ledgerText{beat: 7}).compareBeat(beats); errors.Is(err, base.ErrCorrupt) != lost || (err != nil) != lost {
			t.Errorf("heartbeat %d of 7: %v", beats, err)
		}
	}
}
