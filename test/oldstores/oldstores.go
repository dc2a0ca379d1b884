// Package oldstores has stores of older formats, as the programs of their time left them,
// for tests of the upgrade, and of whoever looks at a store that was not upgraded. A program
// of today cannot make such a store. testdata/README.md says how these were made.
package oldstores

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/zeebo/xxh3"
)

//go:embed testdata/*.tar.gz
var archives embed.FS

// Names are the stores that there are.
var Names = []string{"format1-clean", "format1-killed", "format2-clean", "format2-killed", "format2-refused", "format2-failover"}

// A Store is what must be in a stored store: what the program that wrote it was answered.
type Store struct {
	Commit   string   `json:"commit"` // of the program that wrote it
	Format   uint32   `json:"format"`
	Shards   int      `json:"shards"`
	ID       string   `json:"id"` // 32 hex digits
	Epoch    uint16   `json:"epoch"`
	Clean    bool     `json:"clean"`    // it ended cleanly
	Failover string   `json:"failover"` // the directory to which its log had gone; empty: none
	Refused  string   `json:"refused"`  // why it must not be served; empty: it may
	Clock    int64    `json:"clock"`    // of its machine at the end, seconds since 1970
	Keys     []Key    `json:"keys"`     // by shard and key
	Gone     []Name   `json:"gone"`     // keys that were deleted
	Results  []Result `json:"results"`

	// Incarnation and Newest are what watchers are told of a clean stop; 0: there is nothing.
	Incarnation uint64 `json:"incarnation"`
	Newest      uint64 `json:"newest"`
}

// A Name is a key and its shard.
type Name struct {
	Shard uint16 `json:"shard"`
	Key   string `json:"key"`
}

// A Key is a key with its record.
type Key struct {
	Name
	Version uint64 `json:"version"`
	Expiry  uint64 `json:"expiry"` // microseconds since 1970; 0: none
	Length  int    `json:"length"` // of the value
	Sum     string `json:"sum"`    // xxh3 of the value, 16 hex digits
}

// Has says whether value is that of the key.
func (k Key) Has(value []byte) bool {
	return len(value) == k.Length && fmt.Sprintf("%016x", xxh3.Hash(value)) == k.Sum
}

// A Result is that of a request, which is kept for retries. The client of all of them is
// Client; an increment has added 1.
type Result struct {
	Name
	Kind    string `json:"kind"` // "increment" or "delete"
	Slot    uint16 `json:"slot"`
	Seq     uint64 `json:"seq"`
	Version uint64 `json:"version"`
	Number  int64  `json:"number"`  // of an increment
	Existed bool   `json:"existed"` // the key was there
}

// Client made the requests of all Results.
var Client = [16]byte{7, 1}

// Now is the time at which a store ended, by the clock of its machine.
func (s *Store) Now() time.Time { return time.Unix(s.Clock, 0) }

// Open hands the files of a store to file, with their paths: "store/...", and of one whose
// log has gone to a second directory also "aside/...".
func Open(name string, file func(path string, content []byte) error) (*Store, error) {
	packed, err := archives.ReadFile("testdata/" + name + ".tar.gz")
	if err != nil {
		return nil, err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var s *Store
	for r := tar.NewReader(unzipped); ; {
		head, err := r.Next()
		if err == io.EOF && s != nil {
			return s, nil
		}
		if err != nil {
			return nil, errors.Join(err, unzipped.Close())
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		if head.Name == "list.json" {
			s = new(Store)
			err = json.Unmarshal(content, s)
		} else {
			err = file(head.Name, content)
		}
		if err != nil {
			return nil, err
		}
	}
}
