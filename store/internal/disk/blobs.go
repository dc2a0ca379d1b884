package disk

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// eachBlob calls f with the name and the size of each blob file that the manifest has now, until f
// returns an error.
func eachBlob(db *pebble.DB, f func(name string, size uint64) error) (err error) {
	// A version may be let go as soon as there is a newer one. An iterator keeps
	// that of its creation and its files; it is v if v was the newest before and after.
	v := db.DebugCurrentVersion()
	var pin *pebble.Iterator
	for {
		if pin, err = db.NewIter(nil); err != nil {
			return err
		}
		newest := db.DebugCurrentVersion()
		if newest == v {
			break
		}
		v = newest // a flush or a compaction ended meanwhile
		if err := pin.Close(); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, pin.Close()) }()
	for blob := range v.BlobFiles.All() {
		if err := f(blob.Physical.FileNum.String()+".blob", blob.Physical.Size); err != nil {
			return err
		}
	}
	return nil
}

// compareBlobs compares the blob files, in which large values live, with what
// the manifest says of them: Pebble does that for its tables when it opens, and
// not for these. It would meet a file that is missing or has another size only
// when a value of it is read, and panic without the file's name. After a clean
// stop the ledger tells; this tells after a crash too. It costs one Stat a file.
func compareBlobs(db *pebble.DB, c Config) (faults []*base.CorruptError, err error) {
	err = eachBlob(db, func(name string, want uint64) error {
		info, err := c.FS.Stat(c.FS.PathJoin(c.FS.PathJoin(c.Dir, dataDir), name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			faults = append(faults, &base.CorruptError{File: name,
				Detail: fmt.Sprintf("missing; the manifest has it with %d bytes", want)})
		case err != nil:
			return err
		case uint64(info.Size()) != want:
			longer := "shorter"
			if uint64(info.Size()) > want {
				longer = "longer"
			}
			faults = append(faults, &base.CorruptError{File: name,
				Detail: fmt.Sprintf("%d bytes, %s than the %d that the manifest says", info.Size(), longer, want)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return faults, nil
}

// checkBlobs is compareBlobs for a start: the first fault, with the number of the others.
func checkBlobs(db *pebble.DB, c Config) error {
	faults, err := compareBlobs(db, c)
	if err != nil || len(faults) == 0 {
		return err
	}
	if others := len(faults) - 1; others > 0 {
		faults[0].Detail += fmt.Sprintf("; %d more blob files are damaged, kvserver check names them", others)
	}
	return faults[0]
}
