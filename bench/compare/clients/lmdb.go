package clients

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/internal/load"
)

//go:embed native/lmdb.c
var lmdbSource []byte

// An LMDB is the compiled program that fills and reads LMDB's environments.
type LMDB struct{ Native }

// CompileLMDB compiles it into a directory. The error says what to install.
func CompileLMDB(ctx context.Context, dir string) (*LMDB, error) {
	n, err := compile(ctx, dir, "lmdb", lmdbSource, "-llmdb")
	if err != nil {
		return nil, fmt.Errorf("LMDB's client cannot be compiled (Debian: apt-get install gcc liblmdb-dev): %w", err)
	}
	return &LMDB{*n}, nil
}

// Version is what LMDB calls itself.
func (l *LMDB) Version(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, l.path, "version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// mapBytes bounds the map of an environment: more than twice what the records
// take, and no less than what a small one needs.
func mapBytes(records uint64, record int) uint64 {
	const page = 4096 // of which a large value takes whole ones
	return 64<<20 + 3*records*uint64(record+64+record/page*16+min(record, page))
}

// Load makes an environment in an empty directory and fills it with the records of
// the options, in the order of their keys. The options' Open and FillWorkers are
// not used.
func (l *LMDB) Load(ctx context.Context, dir string, o load.Options) (err error) {
	value := o.Values.Max()
	cmd := exec.CommandContext(ctx, l.path, "load", dir, strconv.FormatUint(mapBytes(o.Records, o.Keys.Size+value), 10),
		strconv.Itoa(o.Keys.Size), strconv.Itoa(value))
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	w := bufio.NewWriterSize(in, 1<<20)
	o.Open = func(context.Context, int) (load.Store, error) { return records{w}, nil }
	o.FillWorkers, o.FillBatch = 1, 1 // one caller takes the keys in their order
	_, fillErr := load.Fill(ctx, o)
	fillErr = errors.Join(fillErr, w.Flush(), in.Close())
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("loading LMDB: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	if got := strings.TrimSpace(out.String()); fillErr == nil && got != strconv.FormatUint(o.Records, 10) {
		fillErr = fmt.Errorf("%w: LMDB stored %.40q of %d records", ErrProtocol, got, o.Records)
	}
	return fillErr
}

// records is a store that only takes puts, and writes them one behind the other.
type records struct{ w *bufio.Writer }

func (r records) Put(_ context.Context, key, value []byte) error {
	_, err := r.w.Write(key)
	_, err2 := r.w.Write(value)
	return errors.Join(err, err2)
}

func (records) Get(context.Context, []byte, []byte) ([]byte, load.Path, error) {
	return nil, load.PathNone, load.ErrUnsupported
}
func (records) Delete(context.Context, []byte) error           { return load.ErrUnsupported }
func (records) Scan(context.Context, []byte, int) (int, error) { return 0, load.ErrUnsupported }
func (records) Close() error                                   { return nil }

// LMDBBytes is what the file of an environment takes of memory or disk, in bytes.
func LMDBBytes(dir string) (uint64, error) {
	info, err := os.Stat(filepath.Join(dir, "data.mdb"))
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: %w", info.Name(), errors.ErrUnsupported)
	}
	return uint64(st.Blocks) * 512, nil
}

// A Reading is how an environment is read.
type Reading struct {
	Dir      string
	Choices  string // file of WriteChoices
	Records  uint64
	Keys     load.Keys
	Value    int // bytes
	Batch    int // keys in a reader's transaction; a divisor of 64
	Warm     time.Duration
	Duration time.Duration
}

// Read measures gets by one thread. Keys of a batch count as so many operations.
func (l *LMDB) Read(ctx context.Context, r Reading) (report.Sample, error) {
	return l.run(ctx, r.Batch, "get", r.Dir, strconv.FormatUint(mapBytes(r.Records, r.Keys.Size+r.Value), 10), strconv.FormatUint(r.Records, 10),
		r.Keys.Prefix, strconv.Itoa(r.Keys.Size), strconv.Itoa(r.Value), strconv.Itoa(r.Batch), seconds(r.Warm), seconds(r.Duration), r.Choices)
}

// WriteChoices writes the numbers of the keys that the options choose, n of them,
// into a file of dir, as Reading takes it.
func WriteChoices(dir string, o load.Options, n int) (path string, err error) {
	numbers, err := o.DrawNumbers(n)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "choices-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Name(), writeNumbers(f, numbers)
}

func writeNumbers(to io.Writer, numbers []uint32) error {
	w := bufio.NewWriter(to)
	var b [4]byte
	for _, n := range numbers {
		binary.LittleEndian.PutUint32(b[:], n)
		if _, err := w.Write(b[:]); err != nil {
			return err
		}
	}
	return w.Flush()
}
