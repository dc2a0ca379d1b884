//go:build linux && cgo

package ibv

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A way is how a program waits for the completion of one READ.
type way struct {
	name string
	read func(b *bed, wr []SendWR, wcs []WC) error
}

var ways = []way{
	{"post+poll", func(b *bed, wr []SendWR, wcs []WC) error {
		if _, err := b.b.PostSend(wr); err != nil {
			return err
		}
		for {
			if n, err := b.cqB.Poll(wcs); n > 0 || err != nil {
				return err
			}
		}
	}},
	{"post+spin", func(b *bed, wr []SendWR, wcs []WC) error {
		if _, err := b.b.PostSend(wr); err != nil {
			return err
		}
		for {
			if n, err := b.cqB.Spin(wcs, MaxSpin); n > 0 || err != nil {
				return err
			}
		}
	}},
	{"postspin", func(b *bed, wr []SendWR, wcs []WC) error {
		_, n, err := b.b.PostSendSpin(wr, b.cqB, wcs, MaxSpin)
		for n == 0 && err == nil {
			n, err = b.cqB.Spin(wcs, MaxSpin)
		}
		return err
	}},
	{"channel", func(b *bed, wr []SendWR, wcs []WC) error {
		if err := b.cqB.ReqNotify(false); err != nil {
			return err
		}
		if _, err := b.b.PostSend(wr); err != nil {
			return err
		}
		for {
			if _, err := b.ch.Get(context.Background()); err != nil {
				return err
			}
			if n, err := b.cqB.Poll(wcs); n > 0 || err != nil {
				return err
			}
		}
	}},
}

// measure is the median and the least time of n READs, in microseconds.
func measure(t testing.TB, b *bed, w way, size, n int) (median, least float64) {
	t.Helper()
	wr := []SendWR{b.read(1, 32<<10, 0, size)}
	wcs := make([]WC, 1)
	times := make([]time.Duration, n)
	// One look at the clock per READ, as perftest does.
	start := time.Now()
	for i, last := 0, time.Duration(0); i < n; i++ {
		if err := w.read(b, wr, wcs); err != nil || wcs[0].Status != StatusSuccess {
			t.Fatal(err, wcs[0])
		}
		now := time.Since(start)
		times[i], last = now-last, now
	}
	slices.Sort(times)
	return float64(times[n/2]) / 1e3, float64(times[0]) / 1e3
}

func BenchmarkRead(b *testing.B) {
	for _, w := range ways {
		for _, size := range []int{64, 4096} {
			b.Run(fmt.Sprintf("%s/%d", w.name, size), func(b *testing.B) {
				bed := newBed(b, options{channel: true})
				measure(b, bed, w, size, 100)
				b.ReportAllocs()
				b.ResetTimer()
				p50, least := measure(b, bed, w, size, b.N)
				b.ReportMetric(p50, "p50-us")
				b.ReportMetric(least, "min-us")
			})
		}
	}
}

// BenchmarkReadBatch is the rate of READs in batches of 16.
func BenchmarkReadBatch(b *testing.B) {
	bed := newBed(b, options{})
	wrs := make([]SendWR, 16)
	for i := range wrs {
		wrs[i] = bed.read(uint64(i), 32<<10+64*i, 64*i, 64)
		wrs[i].Flags = 0
	}
	wrs[15].Flags = SendSignaled
	wcs := make([]WC, 16)
	for i := 0; i < b.N; i += 16 {
		if _, err := bed.a.PostSend(wrs); err != nil {
			b.Fatal(err)
		}
		for n := 0; n == 0; {
			var err error
			if n, err = bed.cqA.Spin(wcs, MaxSpin); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
}

// BenchmarkBesidePerftest runs every way and ib_read_lat in turns, since the
// machine is never as fast twice, and reports the medians of the rounds as
// ratios to ib_read_lat's typical time.
func BenchmarkBesidePerftest(b *testing.B) {
	if _, err := exec.LookPath("ib_read_lat"); err != nil {
		if inLab() {
			b.Fatal(err)
		}
		b.Skip(err)
	}
	const rounds, n = 5, 2000
	for _, size := range []int{64, 4096} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			bed := newBed(b, options{channel: true})
			perf := make([]float64, rounds)
			perfEvents := make([]float64, rounds)
			ours := make([][]float64, len(ways))
			for r := range rounds {
				perf[r] = perftest(b, bed, size, n)
				for i, w := range ways {
					p50, _ := measure(b, bed, w, size, n)
					ours[i] = append(ours[i], p50)
				}
				perfEvents[r] = perftest(b, bed, size, n, "-e")
			}
			typical, events := median(perf), median(perfEvents)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(typical, "ib_read_lat-us")
			b.ReportMetric(events, "ib_read_lat-e-us")
			for i, w := range ways {
				beside := typical
				if w.name == "channel" {
					beside = events
				}
				b.ReportMetric(median(ours[i])/beside, w.name+"-ratio")
			}
		})
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// perftest runs ib_read_lat against itself and returns t_typical in
// microseconds.
func perftest(b *testing.B, bed *bed, size, n int, more ...string) float64 {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	args := append([]string{"-d", bed.ctx.Info().Name, "-x", strconv.Itoa(bed.gid.Index), "-s", strconv.Itoa(size),
		"-n", strconv.Itoa(n), "-p", port, "-F"}, more...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	server := exec.CommandContext(ctx, "ib_read_lat", args...)
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		cancel()
		server.Wait()
	}()
	var out []byte
	for ctx.Err() == nil { // until the server listens
		out, err = exec.CommandContext(ctx, "ib_read_lat", append(args, "127.0.0.1")...).CombinedOutput()
		if err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for line := range strings.Lines(string(out)) {
		// #bytes #iterations t_min t_max t_typical ...
		if f := strings.Fields(line); len(f) >= 6 && f[0] == strconv.Itoa(size) && f[1] == strconv.Itoa(n) {
			if v, err := strconv.ParseFloat(f[4], 64); err == nil {
				return v
			}
		}
	}
	b.Fatalf("ib_read_lat: %v\n%s", err, out)
	return 0
}
