package disk

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

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
	case id.format < formatVersion:
		return "", nil, errors.Join(&base.OpenError{
			Dir: dir, Err: ErrNoLog,
			Hint: fmt.Sprintf("it has format %d, and a start makes one of format %d of it", id.format, formatVersion),
		}, lock.Close())
	}
	return path, lock, nil
}

// ErrNoLog: the store is of a format that has no log of its own.
var ErrNoLog = errors.New("the store has no log of its own")
