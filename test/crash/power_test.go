package crash

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/lab"
)

var (
	cutsFlag = flag.Int("cuts", 0, "power cuts to make; 0: skip the test, which boots a guest for each")
	seedFlag = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the moments at which the power goes")
)

// TestPowerCuts kills a guest under load, -cuts times, and after each cut reads
// every key that was acknowledged, from the disk that is left: it has what was
// acknowledged last, or something newer, whole.
//
//	go test ./test/crash -run TestPowerCuts -cuts 50 -timeout 2h -v
func TestPowerCuts(t *testing.T) {
	if *cutsFlag == 0 {
		t.Skip("boots a guest for each power cut: -cuts 50")
	}
	rng := rand.New(rand.NewPCG(*seedFlag, 1))
	t.Logf("seed %d", *seedFlag)
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-o", dir+"/", "../../cmd/kvserver", "./writer").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := lab.NewDisk(disk, 512); err != nil {
		t.Fatal(err)
	}
	told := make(map[int]uint64)
	acks, verified := 0, 0
	for cut := range *cutsFlag + 1 { // the last life only verifies
		var text strings.Builder
		for key, seq := range told {
			fmt.Fprintln(&text, key, seq)
		}
		if err := os.WriteFile(filepath.Join(dir, "told"), []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		l := plan{number: cut, last: cut == *cutsFlag, early: cut > 0 && rng.IntN(4) == 0, after: time.Duration(100+rng.IntN(4000)) * time.Millisecond}
		a, v := l.life(t, dir, disk, told)
		acks, verified = acks+a, verified+v
	}
	t.Logf("%d power cuts, %d writes acknowledged, %d keys verified after a cut", *cutsFlag, acks, verified)
	if acks == 0 || verified == 0 {
		t.Error("there was no load")
	}
}

// A plan is when the power of one life goes: some time after everything was verified, or early,
// some time after the server was started, which may be before it serves. The last life ends
// when it has verified.
type plan struct {
	number      int
	last, early bool
	after       time.Duration
}

// life boots a guest and cuts its power as planned.
func (p plan) life(t *testing.T, dir, disk string, told map[int]uint64) (acks, verified int) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	g, err := lab.Boot(ctx, lab.Config{Dir: dir, Disk: disk, RDMA: lab.None, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	r, w := io.Pipe()
	var errOut lockedText
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		script := fmt.Sprintf("/mnt/kvserver --data-dir /data/store --fabric iwarp --listen 127.0.0.1:7400 --admin-listen '' --memory-limit 24MiB --expert-region-size 4MiB --expert-index-region-size 4MiB --log-bytes 8MiB --log-level warn >/dev/null & "+
			"exec /mnt/writer -told /mnt/told -life %d", p.number)
		code, err := g.Run(ctx, w, &errOut, "/bin/sh", "-c", script)
		w.CloseWithError(fmt.Errorf("code %d: %v", code, err))
	}()
	cutAt := make(<-chan time.Time)
	if p.early && !p.last {
		cutAt = time.After(p.after)
	}
	lines := make(chan string, 1024)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				<-ended
				t.Fatalf("life %d ended before the cut: %s", p.number, errOut.String())
			}
			var key int
			var seq uint64
			if n, _ := fmt.Sscanf(line, "ack %d %d", &key, &seq); n == 2 {
				told[key] = max(told[key], seq)
				acks++
			} else if n, _ := fmt.Sscanf(line, "verified %d", &verified); n == 1 {
				switch {
				case p.last:
					cutAt = time.After(0)
				case !p.early:
					cutAt = time.After(p.after)
				}
			}
		case <-ctx.Done():
			t.Fatalf("life %d: nothing is written: %v; standard error: %s", p.number, ctx.Err(), errOut.String())
		case <-cutAt:
			if err := g.Kill(); err != nil {
				t.Fatal(err)
			}
			for line := range lines { // what was told before the cut and is still on its way
				var key int
				var seq uint64
				if n, _ := fmt.Sscanf(line, "ack %d %d\n", &key, &seq); n == 2 {
					told[key] = max(told[key], seq)
					acks++
				}
			}
			<-ended
			t.Logf("cut %d after %v (early: %v): %d acknowledged, %d verified", p.number, p.after, p.early, acks, verified)
			return acks, verified
		}
	}
}

// A lockedText is what programs in the guest write to standard error.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
