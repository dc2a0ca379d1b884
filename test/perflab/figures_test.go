package perflab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/test/node"
)

// theirLat is the typical latency of one of perftest's programs.
func theirLat(program string, size int) measure {
	return func(e *env) (float64, error) {
		return e.theirs.run(e.ctx, "t_typical[usec]", program, "-s", strconv.Itoa(size), "-n", strconv.Itoa(*nFlag))
	}
}

// messages is how many a rate is measured with: whole batches.
func messages() int { return 10 * *nFlag / depth * depth }

// theirRate is the rate of ib_read_bw with a list of READs at a doorbell, all
// of them signaled: 16 go out when 16 have come back.
func theirRate(size int) measure {
	return func(e *env) (float64, error) {
		d := strconv.Itoa(depth)
		mpps, err := e.theirs.run(e.ctx, "MsgRate[Mpps]", "ib_read_bw", "-s", strconv.Itoa(size), "-n", strconv.Itoa(messages()), "-t", d, "-l", d, "-Q", "1")
		return mpps * 1e6, err
	}
}

// perfServer starts "kvclient fabric perf --serve" and returns its address.
func (e *env) perfServer(addr string) string {
	cmd := exec.Command(filepath.Join(*binFlag, "kvclient"), "--fabric", "verbs", "fabric", "perf", "--serve", addr)
	cmd.Env = node.CleanEnv(os.Environ())
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		e.t.Fatal(err)
	}
	var last atomic.Value
	gone := make(chan struct{})
	found := make(chan string, 1)
	go func() {
		defer close(gone)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			last.Store(lines.Text())
			if _, rest, ok := strings.Cut(lines.Text(), "serving on verbs/"+*deviceFlag+" at "); ok {
				at, _, _ := strings.Cut(rest, " ")
				found <- at
			}
		}
	}()
	e.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // Wait says if it was gone
		<-gone
		if err := cmd.Wait(); err != nil {
			e.t.Errorf("fabric perf --serve: %v", err)
		}
	})
	select {
	case at := <-found:
		return at
	case <-gone:
		e.t.Fatalf("fabric perf --serve does not serve: %v", last.Load())
	case <-time.After(time.Minute):
		e.t.Fatal("fabric perf --serve says nothing")
	}
	return ""
}

// typical runs f n times and returns the median of the times in microseconds,
// each from one begin to the next, as perftest counts.
func typical(n int, f func(i int) error) (float64, error) {
	times := make([]float64, n)
	last := time.Now()
	for i := range times {
		if err := f(i); err != nil {
			return 0, err
		}
		now := time.Now()
		times[i] = float64(now.Sub(last).Nanoseconds()) / 1e3
		last = now
	}
	return median(times), nil
}

// gets are gets one at a time. How many READs each took is checked: a cached
// place makes it one, none makes it two steps.
func (e *env) gets(c *client.Client) (float64, error) {
	get := func(i int) (err error) {
		e.buf, err = c.GetInto(e.ctx, e.keys[i%keys], e.buf[:0])
		if err == nil && len(e.buf) != size {
			err = fmt.Errorf("a value of %d bytes", len(e.buf))
		}
		return err
	}
	if _, err := typical(2*keys, get); err != nil { // fills the cache
		return 0, err
	}
	before := c.Counters()
	v, err := typical(*nFlag, get)
	after := c.Counters()
	if hits := after.OneSidedHits - before.OneSidedHits; err == nil && hits != uint64(*nFlag) {
		err = fmt.Errorf("%d of %d gets were one-sided", hits, *nFlag)
	}
	reads := float64(after.Reads-before.Reads) / float64(*nFlag)
	if c == e.cached && reads > 1.1 {
		err = fmt.Errorf("%.2f READs per get with a cache", reads)
	}
	e.t.Logf("%.3f READs per get", reads)
	if c == e.uncache && reads < 1.9 {
		err = fmt.Errorf("%.2f READs per get without a cache", reads)
	}
	return v, err
}

// getRate is gets a second, 16 with one doorbell, then the next 16.
func (e *env) getRate() (float64, error) {
	n := messages()
	run := func(n int) error {
		for i := 0; i < n; i += depth {
			at := i % keys
			results, err := e.cached.MultiGet(e.ctx, e.keys[at:at+depth])
			if err != nil {
				return err
			}
			for _, r := range results {
				if r.Err != nil || len(r.Value) != size {
					return fmt.Errorf("%d bytes, %v", len(r.Value), r.Err)
				}
			}
		}
		return nil
	}
	if err := run(2 * keys); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := run(n); err != nil {
		return 0, err
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

// puts are puts of new values for old keys, one at a time, without a sync.
func (e *env) puts() (float64, error) {
	value := make([]byte, size)
	put := func(i int) error {
		value[0]++
		return e.cached.Put(e.ctx, e.keys[i%keys], value)
	}
	if _, err := typical(keys, put); err != nil {
		return 0, err
	}
	return typical(*nFlag, put)
}
