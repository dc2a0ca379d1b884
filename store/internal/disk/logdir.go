package disk

import (
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/log"
)

func openLogDir(fsys vfs.FS, path string) (log.Dir, error) { panic("to come") }
