package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The ledger closes holes in what Pebble can tell after a clean stop. Damage
// in the middle of a MANIFEST looks like its end to Pebble, and so does damage
// behind the last sync that a log records: the store would open, and be an
// older one. So the last act of Close is to write down every file of Pebble's
// with its size, and for those that are small and matter most (manifests,
// logs, options, markers) a checksum. Open compares, then removes the ledger
// before Pebble may change a file.
//
// LEDGER is text:
//
//	rdmakv ledger 1
//	FILE SIZE CHECKSUM       one line per file, by name; "-": no checksum
//	end COUNT CHECKSUM       of all lines above
//
// After a crash there is none, and nothing is compared; Pebble's own checks
// and the heartbeats in the log (keeper.go) are what there is then.
const ledgerFile = "LEDGER"

const (
	ledgerMagic = "rdmakv ledger 1"
	noSum       = "-"
)

// A ledgerLine is one file.
type ledgerLine struct {
	name string
	size int64
	sum  string // 16 hex digits, or noSum
}

// summed says whether a file's content goes into the ledger. Tables and blob
// files may be many GiB, and have checksums per block.
func summed(name string) bool {
	return !strings.HasSuffix(name, ".sst") && !strings.HasSuffix(name, ".blob")
}

// listData returns a line for every file of Pebble's, by name.
func listData(c Config) ([]ledgerLine, error) {
	dir := c.FS.PathJoin(c.Dir, dataDir)
	names, err := c.FS.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var lines []ledgerLine
	for _, name := range names {
		if name == lockFile {
			continue
		}
		path := c.FS.PathJoin(dir, name)
		info, err := c.FS.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			continue
		}
		line := ledgerLine{name: name, size: info.Size(), sum: noSum}
		if summed(name) {
			if line.sum, err = fileSum(c.FS, path); err != nil {
				return nil, err
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// fileSum returns the checksum of a file's content.
func fileSum(fsys vfs.FS, path string) (string, error) {
	f, err := fsys.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := xxh3.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%016x", h.Sum64()), nil
}

// encodeLedger returns the text of a ledger.
func encodeLedger(lines []ledgerLine) []byte {
	b := []byte(ledgerMagic + "\n")
	for _, l := range lines {
		b = fmt.Appendf(b, "%s %d %s\n", l.name, l.size, l.sum)
	}
	return fmt.Appendf(b, "end %d %016x\n", len(lines), xxh3.Hash(b))
}

// parseLedger reads the text of a ledger.
func parseLedger(b []byte) ([]ledgerLine, error) {
	r := bufio.NewScanner(bytes.NewReader(b))
	if !r.Scan() || r.Text() != ledgerMagic {
		return nil, errors.New("does not start with " + strconv.Quote(ledgerMagic))
	}
	at := len(ledgerMagic) + 1
	var lines []ledgerLine
	for r.Scan() {
		f := strings.Split(r.Text(), " ")
		if len(f) != 3 {
			return nil, fmt.Errorf("line of %d fields", len(f))
		}
		size, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || size < 0 {
			return nil, fmt.Errorf("size %q of %q", f[1], f[0])
		}
		if f[0] == "end" {
			if int(size) != len(lines) || f[2] != fmt.Sprintf("%016x", xxh3.Hash(b[:at])) {
				return nil, errors.New("its checksum does not hold")
			}
			return lines, nil
		}
		lines = append(lines, ledgerLine{name: f[0], size: size, sum: f[2]})
		at += len(r.Text()) + 1
	}
	return nil, errors.New("it has no end")
}

// writeLedger writes down the files of a store whose Pebble was just closed.
func writeLedger(c Config) error {
	lines, err := listData(c)
	if err != nil {
		return fmt.Errorf("store: ledger: %w", err)
	}
	return writeFile(c.FS, c.FS.PathJoin(c.Dir, ledgerFile), encodeLedger(lines))
}

// compareLedger compares the files with the ledger, if there is one.
func compareLedger(c Config) (found bool, err error) {
	b, err := readFile(c.FS, c.FS.PathJoin(c.Dir, ledgerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	want, err := parseLedger(b)
	if err != nil {
		// It was written whole and synced; but it is not the data, and a
		// store must not be lost over it. Written over by hand, it says so.
		return true, &CorruptError{File: ledgerFile, Err: err, Detail: "remove it to open without this check"}
	}
	have, err := listData(c)
	if err != nil {
		return true, err
	}
	byName := make(map[string]ledgerLine, len(have))
	for _, l := range have {
		byName[l.name] = l
	}
	for _, w := range want {
		switch h, ok := byName[w.name]; {
		case !ok:
			return true, &CorruptError{File: w.name, Detail: "missing since the last clean stop"}
		case h.size != w.size:
			return true, &CorruptError{File: w.name,
				Detail: fmt.Sprintf("%d bytes, %d at the last clean stop", h.size, w.size)}
		case h.sum != w.sum:
			return true, &CorruptError{File: w.name, Detail: "changed since the last clean stop"}
		}
	}
	return true, nil
}

// checkLedger compares, and removes the ledger durably: from now on the files
// may change.
func checkLedger(c Config) error {
	found, err := compareLedger(c)
	if err != nil || !found {
		return err
	}
	if err := c.FS.Remove(c.FS.PathJoin(c.Dir, ledgerFile)); err != nil {
		return err
	}
	return syncDir(c.FS, c.Dir)
}
