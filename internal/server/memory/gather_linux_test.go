package memory

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestGatherAuto: with huge_pages auto the memory that peers map, the newest region too, is put into huge pages while
// it fills, by itself; and nothing is where it is off, or where nobody maps the memory.
func TestGatherAuto(t *testing.T) {
	dev, err := shm.New(shm.Options{Dir: t.TempDir()}).Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	if !kernelGathers(t) {
		t.Skip("this kernel puts no memfd into huge pages (MADV_COLLAPSE, Linux 6.1): so says package mem, whose own test demands it where it ought to be")
	}
	log := base.NewLog(slog.New(slog.DiscardHandler))
	if r := NewRegions(RegionsConfig{Huge: HugeAuto}, log); r.gatherPeriod() != 0 {
		t.Error("it looks for something to gather where nobody maps the memory")
	}
	for _, huge := range []HugePages{HugeOff, HugeAuto} {
		t.Run(huge.String(), func(t *testing.T) {
			r := NewRegions(RegionsConfig{Huge: huge}, log, pd)
			const size = 8 << 20
			raw, err := r.Alloc(1, layout.KindItems, size)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := r.Free(1); err != nil {
					t.Error(err)
				}
			}()
			turns := NewTurnover(TurnoverConfig{Beat: time.Second, TableTime: time.Second, SendTimeout: time.Second}, r, nil, log)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				turns.Run(ctx, nil)
			}()
			fill := func(to int) {
				for i := 0; i < to; i += 4096 {
					raw[i] = byte(i >> 12)
				}
			}
			huges := func() int64 { _, n := r.Bytes(); return n }
			await := func(n int64) {
				t.Helper()
				for deadline := time.Now().Add(30 * time.Second); huge == HugeAuto && huges() < n; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%d of %d bytes are in huge pages", huges(), n)
					}
				}
			}
			fill(size / 2)
			await(size / 2)
			fill(size)
			await(size)
			cancel()
			<-done
			if huge == HugeOff && huges() != 0 {
				t.Errorf("%d bytes are in huge pages", huges())
			}
			for i := 0; i < size; i += 4096 {
				if raw[i] != byte(i>>12) {
					t.Fatalf("byte %d is %d", i, raw[i])
				}
			}
		})
	}
}

// kernelGathers reports whether a block of package mem can be gathered at all.
func kernelGathers(t *testing.T) bool {
	t.Helper()
	const size = 4 << 20
	b, err := mem.Alloc(size, mem.Options{Tag: "probe", Shared: true, Prefault: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	b.GatherFilled(func() bool { return true })
	return b.Gathered() > 0
}
