package disk

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// A store's directory:
//
//	LOCK       held while the store is open
//	STORE      text: what this is. Written last when a store is created
//	STORE.new  the same, while creation is under way
//	LEDGER     what Pebble's files must hold (ledger.go)
//	data/      Pebble
//	log/       the log
//	tables/    tables on their way into Pebble
//	values/    tables of values that records of the log lead to (package tables)
//
// STORE is read before Pebble is touched, because opening would already raise
// the format of a foreign or newer Pebble store. It is also what tells a store
// whose data vanished (a mount that failed) from one not created yet.
const (
	lockFile     = "LOCK"
	identityFile = "STORE"
	creatingFile = "STORE.new"
	dataDir      = "data"
	logDir       = "log"
	tablesDir    = "tables"
	valuesDir    = "values"
)

// An identity is the content of STORE: lines of "name value".
type identity struct {
	format uint32
	reader uint32
	shards uint32
	id     [16]byte
	// unlogged says that the log has yet to be made, and that one which is there was
	// never in force. It is the line "log new".
	unlogged bool
	// clean says, while unlogged, that the last life before the log ended cleanly. It is the
	// line "stop clean". LIFE says it as soon as there is a log.
	clean bool
}

const identityMagic = "rdmakv store"

func (d identity) encode() []byte {
	b := fmt.Appendf(nil, "%s\nformat %d\nreader %d\nshards %d\nid %s\n",
		identityMagic, d.format, d.reader, d.shards, idString(d.id))
	if d.unlogged {
		b = append(b, "log new\n"...)
	}
	if d.clean {
		b = append(b, "stop clean\n"...)
	}
	return b
}

// parseIdentity reads STORE. Unknown lines are a newer version's and ignored:
// what matters is "reader", the oldest version that can read the store.
func parseIdentity(b []byte) (identity, error) {
	var d identity
	lines := strings.Split(string(b), "\n")
	if lines[0] != identityMagic {
		return d, errors.New("does not start with " + strconv.Quote(identityMagic))
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, " ")
		var err error
		switch name {
		case "format":
			err = parseU32(value, &d.format)
		case "reader":
			err = parseU32(value, &d.reader)
		case "shards":
			err = parseU32(value, &d.shards)
		case "id":
			var raw []byte
			if raw, err = hex.DecodeString(value); err == nil && copy(d.id[:], raw) != len(d.id) {
				err = errors.New("must be 32 hex digits")
			}
		case "log":
			d.unlogged = value == "new"
		case "stop":
			d.clean = value == "clean"
		}
		if err != nil {
			return d, fmt.Errorf("%s: %w", name, err)
		}
	}
	if d.format == 0 || d.reader == 0 {
		return d, errors.New("names no format")
	}
	return d, nil
}

func parseU32(s string, v *uint32) error {
	n, err := strconv.ParseUint(s, 10, 32)
	*v = uint32(n)
	return err
}

// enterDir makes sure that dir is a directory of ours or an empty one, and
// takes its lock. created says that the store has yet to be created.
func enterDir(c Config, create bool) (lock io.Closer, id identity, created bool, err error) {
	fsys := c.FS
	switch info, err := fsys.Stat(c.Dir); {
	case err == nil && !info.IsDir():
		return nil, id, false, &base.OpenError{Dir: c.Dir, Err: base.ErrNotDir, Hint: "it is a file; choose another path"}
	case errors.Is(err, fs.ErrNotExist):
		if !create {
			return nil, id, false, &base.OpenError{Dir: c.Dir, Err: base.ErrNoStore}
		}
		if err := makeDir(fsys, c.Dir); err != nil {
			return nil, id, false, openFault(c.Dir, err)
		}
	case err != nil:
		return nil, id, false, openFault(c.Dir, err)
	}
	// Look before locking: the lock file must not appear in a directory that
	// is somebody else's.
	names, err := fsys.List(c.Dir)
	if err != nil {
		return nil, id, false, openFault(c.Dir, err)
	}
	if !slices.Contains(names, identityFile) && !slices.Contains(names, creatingFile) {
		if foreign := slices.DeleteFunc(slices.Clone(names), harmless); len(foreign) > 0 {
			return nil, id, false, &base.OpenError{Dir: c.Dir, Err: base.ErrForeignDir,
				Hint: fmt.Sprintf("it holds %s; choose an empty directory", strconv.Quote(foreign[0]))}
		}
		if !create {
			return nil, id, false, &base.OpenError{Dir: c.Dir, Err: base.ErrNoStore}
		}
	}
	lock, err = takeLock(fsys, fsys.PathJoin(c.Dir, lockFile))
	if err != nil {
		fault := openFault(c.Dir, err)
		if !errors.Is(fault, base.ErrNoAccess) && !errors.Is(fault, base.ErrReadOnlyDisk) && !errors.Is(fault, base.ErrNoSpace) {
			fault = &base.OpenError{Dir: c.Dir, Err: fmt.Errorf("%w: %w", base.ErrLocked, err), Hint: "stop the other server, or choose another directory"}
		}
		return nil, id, false, fault
	}
	id, created, err = readIdentity(c, create)
	if err != nil {
		lock.Close()
		return nil, id, false, openFault(c.Dir, err)
	}
	return lock, id, created, nil
}

// EnterLog is the directory of the log of the stopped store in dir, for those who look at it and
// change nothing. No server opens the store until lock is closed. A store whose STORE or base is
// damaged is entered without a lock (nil), because no server opens it: its log can be looked at
// all the more.
//
// Errors are those of Inspect, and ErrNoLog for a store of an older format.
func EnterLog(dir string, fsys vfs.FS) (path string, lock io.Closer, err error) {
	c := Config{Dir: dir, FS: fsys}.WithDefaults()
	path = c.FS.PathJoin(dir, logDir)
	lock, id, _, err := enterDir(c, false)
	switch {
	case errors.Is(err, base.ErrCorrupt):
		return path, nil, nil
	case err != nil:
		return "", nil, err
	case id.format < logFormat:
		return "", nil, errors.Join(&base.OpenError{
			Dir: dir, Err: ErrNoLog,
			Hint: fmt.Sprintf("it has format %d, and a start makes one of format %d of it", id.format, formatVersion),
		}, lock.Close())
	}
	return path, lock, nil
}

// ErrNoLog: the store is of a format that has no log of its own.
var ErrNoLog = errors.New("the store has no log of its own")

// writeIdentity puts another STORE in the place of the one that is there. It is whole at
// every moment.
func writeIdentity(c Config, id identity) error {
	if err := writeFile(c.FS, c.FS.PathJoin(c.Dir, creatingFile), id.encode()); err != nil {
		return err
	}
	return finishCreation(c)
}

// harmless are the names that an empty directory may have. NODE, MAP and LIVES are
// what a node of a cluster has beside its store, and has without one, too, when
// it was a cache.
func harmless(name string) bool {
	return name == lockFile || name == probeFile || name == "lost+found" || name == "NODE" || name == "MAP" || name == "LIVES"
}

// lockPatience is for how long a start waits for the lock of a server before
// it. One that was killed holds it until the kernel has taken its memory apart,
// a second or so for many GiB.
const lockPatience = 3 * time.Second

// takeLock locks the directory, waiting lockPatience at most.
func takeLock(fsys vfs.FS, name string) (io.Closer, error) {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		lock, err := fsys.Lock(name)
		if err == nil || !errors.Is(err, syscall.EAGAIN) || time.Since(begin) >= lockPatience {
			return lock, err
		}
	}
}

// makeDir creates dir and makes its name durable.
func makeDir(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(fsys, fsys.PathDir(dir))
}

// readIdentity reads STORE under the lock. Where creation was cut short,
// nothing was ever acknowledged: what there is is removed and made anew.
func readIdentity(c Config, create bool) (id identity, created bool, err error) {
	b, err := readFile(c.FS, c.FS.PathJoin(c.Dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		if !create {
			return id, false, &base.OpenError{Dir: c.Dir, Err: base.ErrNoStore, Hint: "its creation was cut short"}
		}
		// A log that is there goes with clearLog.
		if err := c.FS.RemoveAll(c.FS.PathJoin(c.Dir, dataDir)); err != nil {
			return id, false, err
		}
		id = identity{format: formatVersion, reader: formatVersion, shards: uint32(c.Shards), unlogged: true}
		id.id = newIdentity()
		return id, true, writeFile(c.FS, c.FS.PathJoin(c.Dir, creatingFile), id.encode())
	}
	if err != nil {
		return id, false, err
	}
	if id, err = parseIdentity(b); err != nil {
		return id, false, &base.CorruptError{File: identityFile, Err: err}
	}
	if id.reader > formatVersion {
		return id, false, facts{format: id.format, reader: id.reader}.check(c)
	}
	desc, err := pebble.Peek(c.FS.PathJoin(c.Dir, dataDir), c.FS)
	if err != nil || !desc.Exists {
		return id, false, &base.CorruptError{File: dataDir, Detail: "the store's data is missing", Err: err}
	}
	return id, false, nil
}

// finishCreation makes STORE.new to STORE, durably.
func finishCreation(c Config) error {
	err := c.FS.Rename(c.FS.PathJoin(c.Dir, creatingFile), c.FS.PathJoin(c.Dir, identityFile))
	if err != nil {
		return err
	}
	return syncDir(c.FS, c.Dir)
}

// maxSmallFile bounds the files that are read whole.
const maxSmallFile = 64 << 20

// readFile returns the content of a small file.
func readFile(fsys vfs.FS, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSmallFile+1))
	if err == nil && len(b) > maxSmallFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxSmallFile)
	}
	return b, err
}

// writeFile creates a file and makes content and name durable.
func writeFile(fsys vfs.FS, path string, content []byte) error {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, bytes.NewReader(content))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return syncDir(fsys, fsys.PathDir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// newIdentity makes up the id of a store.
func newIdentity() (id [16]byte) {
	rand.Read(id[:]) // never fails
	return id
}
