package clients

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// A RedisBench is one run of redis-benchmark.
type RedisBench struct {
	TCP, Unix string // one of them
	Test      string // get or set
	Clients   int
	Pipeline  int
	Value     int    // bytes
	Keys      uint64 // key:000000000000 on
	Requests  uint64
}

// Args are the arguments, without "--csv".
func (b RedisBench) Args() []string {
	args := []string{"-t", b.Test, "-c", fmt.Sprint(b.Clients), "-P", fmt.Sprint(b.Pipeline), "-d", fmt.Sprint(b.Value),
		"-r", fmt.Sprint(b.Keys), "-n", fmt.Sprint(b.Requests)}
	if b.Unix != "" {
		return append([]string{"-s", b.Unix}, args...)
	}
	host, port, _ := strings.Cut(b.TCP, ":")
	return append([]string{"-h", host, "-p", port}, args...)
}

// Run runs it. It has no option for a time, so Requests has to be chosen for one.
func (b RedisBench) Run(ctx context.Context) (report.Sample, error) {
	cmd := exec.CommandContext(ctx, "redis-benchmark", append(b.Args(), "--csv")...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return report.Sample{}, fmt.Errorf("redis-benchmark: %w: %s", err, stderr(err))
	}
	s, err := parseRedisBench(string(out), b.Test)
	if err != nil {
		return s, err
	}
	s.Ops = b.Requests
	s.Seconds = float64(b.Requests) / s.Rate
	s.ClientCPU = micros(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()) / float64(b.Requests)
	return s, nil
}

func stderr(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// parseRedisBench reads what --csv prints: a line of names, and one for the test.
// Its latencies are in milliseconds, and steps of 8 µs below a tenth of one.
func parseRedisBench(text, test string) (s report.Sample, err error) {
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1 // warnings may stand in between
	r.LazyQuotes = true
	lines, err := r.ReadAll()
	if err != nil {
		return s, fmt.Errorf("%w: redis-benchmark: %v", ErrProtocol, err)
	}
	names := map[string]int{}
	for _, fields := range lines {
		switch {
		case len(fields) > 1 && fields[0] == "test":
			for i, name := range fields {
				names[name] = i
			}
		case len(fields) > 1 && strings.EqualFold(fields[0], test):
			get := func(name string) (v float64) {
				i, ok := names[name]
				if !ok || i >= len(fields) {
					err = errors.Join(err, fmt.Errorf("%w: redis-benchmark has no column %s", ErrProtocol, name))
					return 0
				}
				v, bad := strconv.ParseFloat(fields[i], 64)
				if bad != nil || v < 0 {
					err = errors.Join(err, fmt.Errorf("%w: redis-benchmark: %s is %q", ErrProtocol, name, fields[i]))
				}
				return v
			}
			s.Rate = get("rps")
			s.P50, s.P99, s.Max = 1e3*get("p50_latency_ms"), 1e3*get("p99_latency_ms"), 1e3*get("max_latency_ms")
			if err == nil && s.Rate == 0 {
				err = fmt.Errorf("%w: redis-benchmark counts 0 requests a second", ErrProtocol)
			}
			return s, err
		}
	}
	return s, fmt.Errorf("%w: redis-benchmark: no line for %q in %.200q", ErrProtocol, test, text)
}
