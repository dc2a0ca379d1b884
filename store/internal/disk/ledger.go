package disk

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

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/log"
)

// The ledger closes holes in what Pebble can tell. Damage in the middle of a
// MANIFEST looks like its end to Pebble, and so does damage behind the last
// sync that a log records: the store would open, and be an older one. So the
// store keeps a book of its own beside Pebble, and Open compares.
//
//   - While the store runs the book says of every manifest how many of its first
//     bytes are synced, and their checksum: those must be there, and be the same,
//     whatever a crash took behind them. It is written before Pebble acts on a
//     change of its manifest, before a manifest goes, and after each heartbeat
//     (ledgerfs.go). Of a store of format 1 or 2 it says the same of Pebble's log.
//   - It also carries the position up to which the store's log was durable. A log
//     that ends before has lost its end. In formats 1 and 2 a number stands in its
//     place that was written into Pebble, synced, before: the heartbeat. Whatever
//     loses the end of log or manifest loses that too, and then the store shows
//     an older one.
//   - The last act of Close, and of a backup, is to write down every file with
//     its size, and for those that are small and matter most a checksum of all.
//
// LEDGER is text:
//
//	rdmakv ledger 2
//	state running            or: whole
//	log POSITION             or, in formats 1 and 2: beat NUMBER
//	file SIZE CHECKSUM NAME  one line per file; "-": no checksum
//	end COUNT CHECKSUM       of all lines above
//
// Version 1 knew only whole ledgers and had "NAME SIZE CHECKSUM" in its lines;
// it is read and replaced by version 2.
const ledgerFile = "LEDGER"

const (
	ledgerMagic  = "rdmakv ledger 2"
	ledgerMagic1 = "rdmakv ledger 1"
	noSum        = "-"
)

// A ledgerState says what the lines of a ledger are.
type ledgerState string

const (
	ledgerRunning ledgerState = "running" // the first bytes of manifests and logs
	ledgerWhole   ledgerState = "whole"   // every file, and nobody had it open
)

// A ledgerText is the content of LEDGER.
type ledgerText struct {
	state ledgerState
	beat  uint64       // formats 1 and 2: a heartbeat that is durable in Pebble
	reach log.Position // up to where the store's log was durable; 0: not known
	lines []ledgerLine
}

// A ledgerLine is one file.
type ledgerLine struct {
	name string // in data/, or a full path
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
			if line.sum, err = fileSum(c.FS, path, info.Size()); err != nil {
				return nil, err
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// fileSum returns the checksum of a file's first bytes; io.ErrUnexpectedEOF if
// there are fewer.
func fileSum(fsys vfs.FS, path string, size int64) (string, error) {
	f, err := fsys.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := xxh3.New()
	n, err := io.Copy(h, io.LimitReader(f, size))
	if err != nil {
		return "", err
	}
	if n < size {
		return "", io.ErrUnexpectedEOF
	}
	return sumText(h.Sum64()), nil
}

// sumText is how a checksum is written.
func sumText(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// encode returns the text of a ledger.
func (l ledgerText) encode() []byte {
	b := fmt.Appendf(nil, "%s\nstate %s\n", ledgerMagic, l.state)
	if l.reach != 0 {
		b = fmt.Appendf(b, "log %d\n", uint64(l.reach))
	} else {
		b = fmt.Appendf(b, "beat %d\n", l.beat)
	}
	for _, f := range l.lines {
		b = fmt.Appendf(b, "file %d %s %s\n", f.size, f.sum, f.name)
	}
	return fmt.Appendf(b, "end %d %s\n", len(l.lines), sumText(xxh3.Hash(b)))
}

// parseLedger reads the text of a ledger.
func parseLedger(b []byte) (ledgerText, error) {
	var l ledgerText
	r := bufio.NewScanner(bytes.NewReader(b))
	r.Buffer(nil, 1<<20)
	if !r.Scan() || r.Text() != ledgerMagic && r.Text() != ledgerMagic1 {
		return l, errors.New("does not start with " + strconv.Quote(ledgerMagic))
	}
	old := r.Text() == ledgerMagic1
	if old {
		l.state = ledgerWhole
	}
	for at := len(r.Text()) + 1; r.Scan(); at += len(r.Text()) + 1 {
		word, rest, _ := strings.Cut(r.Text(), " ")
		if word == "end" {
			if rest != fmt.Sprintf("%d %s", len(l.lines), sumText(xxh3.Hash(b[:at]))) {
				return l, errors.New("its checksum does not hold")
			}
			if l.state != ledgerRunning && l.state != ledgerWhole {
				return l, fmt.Errorf("state %q", l.state)
			}
			return l, nil
		}
		var err error
		switch {
		case old:
			err = l.parseFile(rest, word)
		case word == "state":
			l.state = ledgerState(rest)
		case word == "beat":
			l.beat, err = strconv.ParseUint(rest, 10, 64)
		case word == "log":
			var at uint64
			at, err = strconv.ParseUint(rest, 10, 64)
			l.reach = log.Position(at)
		case word == "file":
			sizeAndSum, name := rest, ""
			if i := strings.Index(rest, " "); i >= 0 {
				if j := strings.Index(rest[i+1:], " "); j >= 0 {
					sizeAndSum, name = rest[:i+1+j], rest[i+1+j+1:]
				}
			}
			err = l.parseFile(sizeAndSum, name)
		default:
			err = fmt.Errorf("line %q", clipText(r.Text()))
		}
		if err != nil {
			return l, err
		}
	}
	return l, errors.New("it has no end")
}

// parseFile adds the line of one file: "SIZE CHECKSUM", and its name.
func (l *ledgerText) parseFile(sizeAndSum, name string) error {
	text, sum, ok := strings.Cut(sizeAndSum, " ")
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 || !ok || name == "" || sum != noSum && len(sum) != 16 || strings.Contains(sum, " ") {
		return fmt.Errorf("line of file %q", clipText(name))
	}
	l.lines = append(l.lines, ledgerLine{name: name, size: size, sum: sum})
	return nil
}

// clipText bounds what of a damaged file goes into an error.
func clipText(s string) string { return s[:min(len(s), base.MaxQuotedKey)] }

// writeLedger puts a ledger in the place of the one before, durably: after a
// crash one of the two is there, whole.
func writeLedger(c Config, l ledgerText) error {
	path := c.FS.PathJoin(c.Dir, ledgerFile)
	err := writeFile(c.FS, path+".new", l.encode())
	if err == nil {
		err = c.FS.Rename(path+".new", path)
	}
	if err == nil {
		err = syncDir(c.FS, c.Dir)
	}
	if err != nil {
		return fmt.Errorf("store: ledger: %w", err)
	}
	return nil
}

// writeWhole writes down the files of a store whose Pebble was just closed, and whose log
// was durable up to reach; 0: it has none.
func writeWhole(c Config, reach log.Position) error {
	lines, err := listData(c)
	if err != nil {
		return fmt.Errorf("store: ledger: %w", err)
	}
	return writeLedger(c, ledgerText{state: ledgerWhole, reach: reach, lines: lines})
}

// compareLedger compares the files with the ledger; found=false if there is
// none. Removing LEDGER is how an operator says that he knows better.
func compareLedger(c Config) (l ledgerText, found bool, err error) {
	b, err := readFile(c.FS, c.FS.PathJoin(c.Dir, ledgerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return l, false, nil
	}
	if err != nil {
		return l, false, err
	}
	if l, err = parseLedger(b); err != nil {
		// It was written whole and synced; but it is not the data, and a
		// store must not be lost over it. Written over by hand, it says so.
		return l, true, &base.CorruptError{File: ledgerFile, Err: err, Detail: "remove it to open without this check"}
	}
	if l.state == ledgerWhole {
		return l, true, l.compareWhole(c)
	}
	return l, true, l.compareRunning(c)
}

// compareWhole compares every file with its line.
func (l ledgerText) compareWhole(c Config) error {
	have, err := listData(c)
	if err != nil {
		return err
	}
	byName := make(map[string]ledgerLine, len(have))
	for _, l := range have {
		byName[l.name] = l
	}
	for _, w := range l.lines {
		switch h, ok := byName[w.name]; {
		case !ok:
			return &base.CorruptError{File: w.name, Detail: "missing since the last clean stop"}
		case h.size != w.size:
			return &base.CorruptError{File: w.name,
				Detail: fmt.Sprintf("%d bytes, %d at the last clean stop", h.size, w.size)}
		case h.sum != w.sum:
			return &base.CorruptError{File: w.name, Detail: "changed since the last clean stop"}
		}
	}
	return nil
}

// compareRunning compares what was synced of manifests and logs.
func (l ledgerText) compareRunning(c Config) error {
	known := false
	desc, err := pebble.Peek(c.FS.PathJoin(c.Dir, dataDir), c.FS)
	if err != nil {
		return &base.CorruptError{File: dataDir, Detail: "which manifest is in force cannot be told", Err: err}
	}
	for _, w := range l.lines {
		path := ledgerPath(c, w.name)
		sum, err := fileSum(c.FS, path, w.size)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &base.CorruptError{File: w.name, Detail: "missing since the crash"}
		case errors.Is(err, io.ErrUnexpectedEOF):
			return &base.CorruptError{File: w.name, Detail: fmt.Sprintf("shorter than the %d bytes that were synced", w.size)}
		case err != nil:
			return err
		case sum != w.sum:
			return &base.CorruptError{File: w.name, Detail: fmt.Sprintf("changed within the first %d bytes, which were synced", w.size)}
		}
		known = known || path == desc.ManifestFilename
	}
	if !known {
		return &base.CorruptError{File: c.FS.PathBase(desc.ManifestFilename), Detail: "Pebble calls it the manifest in force, the ledger does not know it"}
	}
	return nil
}

// compareBeat compares the heartbeat that Pebble shows with the ledger's.
func (l ledgerText) compareBeat(beats uint64) error {
	if beats >= l.beat {
		return nil
	}
	return &base.CorruptError{File: dataDir, Detail: fmt.Sprintf("its newest heartbeat is number %d, but %d was durable: the end of a log or of the manifest is lost", beats, l.beat)}
}

// ledgerPath returns the path of a file by its name in the ledger.
func ledgerPath(c Config, name string) string {
	if strings.ContainsAny(name, `/\`) {
		return name
	}
	return c.FS.PathJoin(c.FS.PathJoin(c.Dir, dataDir), name)
}

// openLedger compares the ledger with what is on the disk and goes on with it.
// What it found is returned for the heartbeat, which only Pebble can show.
func (d *Disk) openLedger(created bool) (found ledgerText, err error) {
	c := d.c
	if created {
		// Left by a creation that was cut short: its files are gone.
		if err := c.FS.Remove(c.FS.PathJoin(c.Dir, ledgerFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
		d.ledger = newLedger(c, found)
		return found, nil
	}
	found, known, err := compareLedger(c)
	if err != nil {
		return found, err
	}
	if d.identity.unlogged {
		found.reach = 0 // of another log
	}
	d.ledger = newLedger(c, found)
	if !known {
		c.Logger.Warn("there is no ledger: damage to manifest and log may go unnoticed", "file", ledgerFile)
		// The first manifest that is written begins one. Until Pebble calls that
		// one the manifest in force, it is this, of which nothing is known.
		return found, d.ledger.admit()
	}
	// Before Pebble changes a file that a ledger of all files has.
	return found, d.ledger.write()
}
