package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"

	"github.com/rdmakv/rdmakv/test/node"
)

// stream is n bytes that depend on seed, of which none are kept.
func stream(n int64, seed byte) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), n)
}

// sumOf is the SHA-256 of a stream.
func sumOf(n int64, seed byte) string {
	h := sha256.New()
	_, _ = io.Copy(h, stream(n, seed))
	return hex.EncodeToString(h.Sum(nil))
}

var wholeFlag = flag.Int64("whole", 200<<20+1, "bytes of the value of TestGibibyte; make nightly: 1 GiB, the most there is")

// TestGibibyte puts a value that is stored in parts, and with -whole 1073741824 the largest there is, with kvclient, by standard input and by a file, into a
// node whose memory is smaller, and gets it back, as a stream and as a file, also after a kill -9. kvclient
// does not have it in memory.
func TestGibibyte(t *testing.T) {
	if elsewhere != nil || *fabricFlag == "verbs" {
		t.Skip("it would take too long in a guest")
	}
	size := *wholeFlag
	memory := fmt.Sprintf("%dMiB", max(64, size>>22))
	needSpace(t, 4*uint64(size))
	dir := t.TempDir()
	n := startNode(t, filepath.Join(dir, "store"), "--memory-limit", memory)
	want := sumOf(size, 1)
	kv := func(in io.Reader, out io.Writer, args ...string) (maxRSS int64, err error) {
		cmd := exec.Command(filepath.Join(bin, "kvclient"), append([]string{"--server", n.Data, "--timeout", "100s"}, args...)...)
		cmd.Env = append(node.CleanEnv(os.Environ()), "RDMAKV_FABRIC="+*fabricFlag)
		var said errorText
		cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("kvclient %v: %w: %s", args, err, said.b)
		}
		return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10, nil
	}
	begun := time.Now()
	rss, err := kv(stream(size, 1), nil, "put", "film")
	if err != nil {
		t.Fatal(err)
	}
	put := time.Since(begun)
	get := func() {
		t.Helper()
		h := sha256.New()
		begun := time.Now()
		rss, err := kv(nil, h, "get", "film")
		if got := hex.EncodeToString(h.Sum(nil)); err != nil || got != want {
			t.Fatalf("got %s, want %s: %v", got, want, err)
		}
		t.Logf("%d bytes got in %v, with %d MiB of memory", size, time.Since(begun), rss>>20)
		if rss > 700<<20 {
			t.Errorf("kvclient get took %d MiB", rss>>20)
		}
	}
	t.Logf("%d bytes put in %v, with %d MiB of memory", size, put, rss>>20)
	if rss > 700<<20 {
		t.Errorf("kvclient put took %d MiB", rss>>20)
	}
	get()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	n = startNode(t, filepath.Join(dir, "store"), "--memory-limit", memory)
	get()
	path := filepath.Join(dir, "film")
	if _, err := kv(nil, nil, "get", "film", "--file", path); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(h, f)
	f.Close()
	if got := hex.EncodeToString(h.Sum(nil)); err != nil || got != want {
		t.Errorf("the file has %s, want %s: %v", got, want, err)
	}
	if err := os.Truncate(path, size-1); err != nil {
		t.Fatal(err)
	}
	if _, err := kv(nil, nil, "put", "film", "--file", path); err != nil {
		t.Fatal(err)
	}
	c := dial(t, n)
	if info, err := c.Stat(t.Context(), []byte("film")); err != nil || info.Size != size-1 {
		t.Errorf("%+v, %v", info, err)
	}
	if size == client.MaxValue {
		if _, err := kv(io.MultiReader(stream(size, 2), stream(1, 3)), nil, "put", "film"); err == nil {
			t.Error("a value of more than the most is stored")
		}
	}
	if info, err := c.Stat(t.Context(), []byte("film")); err != nil || info.Size != size-1 {
		t.Errorf("the refused put changed the value: %+v, %v", info, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// errorText keeps the beginning of what a program says.
type errorText struct{ b []byte }

func (w *errorText) Write(b []byte) (int, error) {
	w.b = append(w.b, b[:min(len(b), max(0, 1000-len(w.b)))]...)
	return len(b), nil
}

// needSpace skips a test that the disk has no room for.
func needSpace(t *testing.T, n uint64) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(t.TempDir(), &st); err == nil && st.Bavail*uint64(st.Bsize) < n {
		t.Skipf("%d bytes are free, and it needs %d", st.Bavail*uint64(st.Bsize), n)
	}
}

// TestPartsKilled kills the server while values in parts are put, replaced and read: a put goes on
// when the server is there again, each get is one of the values, whole, and in the end nothing
// else is left. The parts are small, so that there are many.
func TestPartsKilled(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--log-bytes", "16MiB", "--sync", "off", "--memory-limit", "64MiB"}
	n := startNode(t, dir, args...)
	address := n.Data
	c := dial(t, n, func(cfg *client.Config) {
		cfg.Timeout, cfg.PartsAbove, cfg.PartBytes = 60*time.Second, 100_000, 128<<10
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const size = 6 << 20
	sums := map[string]bool{}
	for seed := range byte(8) {
		sums[sumOf(size+int64(seed), seed)] = true
	}
	var wg sync.WaitGroup
	puts, gets := make(chan struct{}, 1<<16), make(chan struct{}, 1<<16)
	for w := range byte(2) {
		wg.Go(func() {
			for i := byte(0); ctx.Err() == nil; i++ {
				seed := w*4 + i%4
				_, err := c.PutReader(ctx, []byte("film"), stream(size+int64(seed), seed), size+int64(seed), client.PutOptions{})
				switch {
				case err == nil:
					puts <- struct{}{}
				case errors.Is(err, client.ErrOutcomeUnknown), ctx.Err() != nil:
				default:
					t.Errorf("put: %v", err)
					return
				}
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				h := sha256.New()
				info, err := c.GetWriter(ctx, []byte("film"), h)
				switch {
				case errors.Is(err, client.ErrNotFound), ctx.Err() != nil:
					continue
				case err != nil:
					t.Errorf("get: %v", err)
					return
				case !sums[hex.EncodeToString(h.Sum(nil))]:
					t.Errorf("%d bytes that nobody has put", info.Size)
					return
				}
				gets <- struct{}{}
			}
		})
	}
	kills := 4
	if testing.Short() {
		kills = 2
	}
	for range kills {
		for range 3 {
			<-puts
			<-gets
		}
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		n = startNode(t, dir, append(args, "--listen", address)...)
	}
	for range 3 {
		<-puts
		<-gets
	}
	cancel()
	wg.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
