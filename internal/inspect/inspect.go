// Package inspect is the work of the commands of kvserver that look at a store
// on the disk: inspect and check, which read every record of a stopped one and
// change nothing, backup and restore.
package inspect

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/rdmakv/rdmakv/store"
)

// Options say what to show.
type Options struct {
	Keys   bool   // one line for each key
	Prefix []byte // only keys that begin so
	Hex    bool   // keys in hexadecimal
	JSON   bool   // one object a line, the summary last
}

// A DamagedError says that a store could be read and is not whole.
type DamagedError struct {
	Problems int
	First    error
}

func (e *DamagedError) Error() string {
	if e.Problems == 1 {
		return fmt.Sprintf("the store is damaged: %v", e.First)
	}
	return fmt.Sprintf("the store is damaged in %d places, first: %v", e.Problems, e.First)
}

// Unwrap returns the first damage.
func (e *DamagedError) Unwrap() error { return e.First }

// Run inspects the store in dir and writes what it finds. Damage that it finds
// is listed and then returned as a *DamagedError; other errors are those of
// store.Inspect, or of writing.
func Run(ctx context.Context, w io.Writer, dir string, opt Options) error {
	return run(ctx, w, dir, opt, func(store.InspectEntry) {})
}

// run is Run with a look at each entry.
func run(ctx context.Context, w io.Writer, dir string, opt Options, each func(store.InspectEntry)) error {
	out := bufio.NewWriter(w)
	in, err := store.Inspect(ctx, dir, store.InspectOptions{
		Prefix: opt.Prefix,
		Each: func(e store.InspectEntry) error {
			each(e)
			if !opt.Keys || store.IsPart(e.Key) { // the line of a value in parts is that of its key
				return nil
			}
			_, err := out.WriteString(line(e, opt))
			return err
		},
	})
	if err == nil {
		err = summary(out, in, opt)
	}
	if flushErr := out.Flush(); err == nil && flushErr != nil {
		return fmt.Errorf("write: %w", flushErr)
	}
	if err != nil {
		return err
	}
	if in.ProblemCount > 0 {
		return &DamagedError{in.ProblemCount, in.Problems[0]}
	}
	return nil
}

// line shows one key.
func line(e store.InspectEntry, opt Options) string {
	key := show(e.Key, opt.Hex)
	if !opt.JSON {
		return fmt.Sprintf("shard %4d  version %14d  %9d B  %s\n", e.Shard, uint64(e.Version), store.WholeLen(e.Value), key)
	}
	return encode(struct {
		Shard   uint16 `json:"shard"`
		Version uint64 `json:"version"`
		Size    int64  `json:"size"`
		Key     string `json:"key"` // as in text output: quoted where it is no plain text
	}{e.Shard, uint64(e.Version), store.WholeLen(e.Value), key})
}

// summary shows the store as a whole.
func summary(w io.Writer, in store.Inspection, opt Options) error {
	problems := make([]string, 0, len(in.Problems))
	for _, p := range in.Problems {
		problems = append(problems, p.Error())
	}
	if opt.JSON {
		_, err := io.WriteString(w, encode(struct {
			Dir       string   `json:"dir"`
			ID        string   `json:"id"`
			Format    uint32   `json:"format"`
			Shards    int      `json:"shards"`
			Epoch     uint16   `json:"epoch"`
			CleanStop bool     `json:"clean_stop"`
			Backup    bool     `json:"backup,omitempty"`        // made while its store served
			Source    string   `json:"restored_from,omitempty"` // a store's id; never started since
			Ledger    bool     `json:"files_compared"`
			Keys      uint64   `json:"keys"`
			KeyBytes  uint64   `json:"key_bytes"`
			Bytes     uint64   `json:"value_bytes"`
			Newest    uint64   `json:"newest_version"`
			Count     int      `json:"problem_count"`
			Problems  []string `json:"problems"`
		}{in.Dir, hex.EncodeToString(in.ID[:]), in.Format, in.Shards, in.Epoch, in.CleanStop, in.Backup, hex.EncodeToString(in.Source), in.Ledger,
			in.Keys, in.KeyBytes, in.Bytes, uint64(in.Newest), in.ProblemCount, problems}))
		return err
	}
	ended := "ended not cleanly: it was killed, or is damaged"
	switch {
	case in.Source != nil:
		ended = fmt.Sprintf("restored from a backup of store %x, never started", in.Source)
	case in.CleanStop:
		ended = "ended cleanly"
	case in.Backup:
		ended = "a backup of a store that served (kvserver restore makes a store of it)"
	}
	compared := "no ledger to compare with"
	if in.Ledger {
		compared = "compared with the ledger"
	}
	_, err := fmt.Fprintf(w, `store      %s
id         %s
format     %d
shards     %d
epoch      %d, %s
files      %s
keys       %d
bytes      %d of keys, %d of values
newest     version %d
problems   %d
`, in.Dir, hex.EncodeToString(in.ID[:]), in.Format, in.Shards, in.Epoch, ended, compared, in.Keys, in.KeyBytes, in.Bytes,
		uint64(in.Newest), in.ProblemCount)
	for _, p := range problems {
		if err == nil {
			_, err = fmt.Fprintf(w, "           %s\n", p)
		}
	}
	return err
}

// show writes a key so that it is harmless on a terminal and differs from every
// other key: as it is, quoted, or in hexadecimal.
func show(key []byte, asHex bool) string {
	if asHex {
		return hex.EncodeToString(key)
	}
	plain := utf8.Valid(key) && len(key) > 0 && key[0] != '"' && key[0] != ' ' && key[len(key)-1] != ' '
	for _, r := range string(key) {
		plain = plain && unicode.IsPrint(r)
	}
	if plain {
		return string(key)
	}
	return strconv.Quote(string(key))
}

// encode writes one line of JSON. It is given only plain structs, and those
// always encode.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b) + "\n"
}
