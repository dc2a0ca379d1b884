package cli

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Thousands writes 1234567 as 1,234,567, because the digits of a long number are
// hard to count.
func Thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Bytes writes a number of bytes in the largest binary unit below it, up to TiB,
// with one digit behind the point. The units are those in which config.yaml is
// written.
func Bytes(n int64) string {
	f, unit := float64(n), 0
	for f >= 1024 && unit < 4 {
		f /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[unit-1])
}

// Duration writes a time with three figures, and an hour or more in whole seconds:
// the digits behind those are noise of the measurement.
func Duration(d time.Duration) string {
	for unit := time.Duration(1); unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}

// Table aligns lines that have a tab between their cells and end in a newline. A
// column is as wide as its longest cell, so all lines must be known before the
// first is printed.
func Table(lines []string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		_, _ = w.Write([]byte(l)) // a Builder takes everything
	}
	_ = w.Flush()
	return b.String()
}

// Quote shows foreign bytes in a message: quoted and cut after 64 bytes, so that
// neither control characters nor megabytes reach a terminal.
func Quote(b []byte) string {
	const most = 64
	if len(b) > most {
		return strconv.Quote(string(b[:most])) + fmt.Sprintf("... (%d bytes)", len(b))
	}
	return strconv.Quote(string(b))
}
