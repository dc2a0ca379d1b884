package lab

import (
	"os"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"
)

func TestFrequency(t *testing.T) {
	khz := tscKHz()
	if runtime.GOARCH != "amd64" {
		if khz != 0 {
			t.Errorf("%d kHz", khz)
		}
		return
	}
	if khz < 200_000 || khz > 10_000_000 {
		t.Fatalf("%d kHz is the frequency of no processor that runs this", khz)
	}
	// Another measurement of longer time must agree to a thousandth.
	t0, c0 := clockAndCounter()
	time.Sleep(3 * calibration)
	t1, c1 := clockAndCounter()
	again := float64(c1-c0) / t1.Sub(t0).Seconds() / 1000
	if off := again/float64(khz) - 1; off > 1e-3 || off < -1e-3 {
		t.Errorf("%d kHz and then %.0f kHz", khz, again)
	}
	// A name like "Xeon @ 2.30GHz" tells the same to some percent.
	data, err := os.ReadFile("/proc/cpuinfo")
	if m := regexp.MustCompile(`@ ([0-9.]+)GHz`).FindSubmatch(data); err == nil && m != nil {
		ghz, err := strconv.ParseFloat(string(m[1]), 64)
		if off := float64(khz)/(ghz*1e6) - 1; err != nil || off > 0.2 || off < -0.2 {
			t.Logf("%d kHz, and the processor is called %s", khz, m[0])
		}
	}
}

func TestClockCheck(t *testing.T) {
	start := time.Now()
	for _, c := range []struct {
		first, second string
		passed        time.Duration
		ok            bool
	}{
		{"2.00", "6.00", 4 * time.Second, true},
		{"2.00", "5.10", 4 * time.Second, true},   // a line came late
		{"2.00", "38.00", 4 * time.Second, false}, // nine times too fast
		{"2.00", "2.50", 4 * time.Second, false},
		{"2.00", "what", 4 * time.Second, false},
	} {
		var check clockCheck
		if err := check.line(c.first, start); err != nil {
			t.Error(err)
		}
		if err := check.line(c.second, start.Add(c.passed)); (err == nil) != c.ok {
			t.Errorf("%s to %s in %v: %v", c.first, c.second, c.passed, err)
		}
	}
}
