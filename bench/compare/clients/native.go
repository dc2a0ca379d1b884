package clients

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

//go:embed native/pingpong.c
var pingpongSource []byte

// A Native is the compiled client in C.
type Native struct {
	path string
	// Start starts a command; nil: as usual.
	Start func(*exec.Cmd) error
}

// CompileNative compiles it into a directory.
func CompileNative(ctx context.Context, dir string) (*Native, error) {
	n, err := compile(ctx, dir, "pingpong", pingpongSource)
	if err != nil {
		return nil, fmt.Errorf("the client in C cannot be compiled: %w", err)
	}
	return n, nil
}

// compile compiles one of the programs in C, with libraries to link.
func compile(ctx context.Context, dir, name string, text []byte, libraries ...string) (*Native, error) {
	source, program := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "gcc", append([]string{"-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source}, libraries...)...)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		first, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n"))
		return nil, fmt.Errorf("%w: %s", err, bytes.ReplaceAll(first, []byte(source), []byte(name+".c")))
	}
	return &Native{path: program}, nil
}

// A PingPong is a floor: a request and an answer of so many bytes between two
// processes that do nothing else.
type PingPong struct {
	Network         string // tcp or unix
	Spin            bool   // both ends
	Request, Answer int    // bytes
	Duration        time.Duration
}

func waiting(spin bool) string {
	if spin {
		return "spin"
	}
	return "sleep"
}

// Floor measures a ping-pong in C.
func (n *Native) Floor(ctx context.Context, p PingPong) (report.Sample, error) {
	return n.run(ctx, 1, p.Network, waiting(p.Spin), fmt.Sprint(p.Request), fmt.Sprint(p.Answer), seconds(p.Duration))
}

// Ask is how the client in C asks a server.
type Ask struct {
	TCP, Unix   string // one of them
	Spin        bool   // the client; the server waits as it does
	Requests    *Requests
	Connections int
	Duration    time.Duration
}

// Ask measures a server. Batches of the requests count as so many operations.
func (n *Native) Ask(ctx context.Context, a Ask) (report.Sample, error) {
	where := "unix:" + a.Unix
	if a.TCP != "" {
		_, port, ok := bytes.Cut([]byte(a.TCP), []byte(":"))
		if !ok {
			return report.Sample{}, fmt.Errorf("%q is no address", a.TCP)
		}
		where = "tcp:" + string(port)
	}
	r := a.Requests
	return n.run(ctx, r.Batch, where, waiting(a.Spin), fmt.Sprint(r.Request), fmt.Sprint(r.Answer), seconds(a.Duration),
		r.File, r.First, fmt.Sprint(a.Connections))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// run starts the client in C with these arguments and reads the line of JSON that
// it prints. It adds the processor time of the process.
func (n *Native) run(ctx context.Context, batch int, args ...string) (report.Sample, error) {
	cmd := exec.CommandContext(ctx, n.path, args...)
	cmd.WaitDelay = time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	start := n.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	err := start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return report.Sample{}, fmt.Errorf("the client in C: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	s, err := parseNative(out.Bytes(), batch)
	if err == nil && s.ClientCPU == 0 {
		// Of the whole run, a tenth of which was not counted.
		s.ClientCPU = micros(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()) / 1.1 / float64(s.Ops)
	}
	return s, err
}

// parseNative reads what the client in C prints: operations, seconds, and latencies
// in nanoseconds, those of a batch where batch is above 1.
func parseNative(out []byte, batch int) (report.Sample, error) {
	var got struct {
		Ops     uint64  `json:"ops"`
		Seconds float64 `json:"seconds"`
		P50     float64 `json:"p50_ns"`
		P90     float64 `json:"p90_ns"`
		P99     float64 `json:"p99_ns"`
		P999    float64 `json:"p999_ns"`
		Max     float64 `json:"max_ns"`
		CPU     float64 `json:"cpu_ns"`     // of what is counted, if the program tells it
		Huge    uint64  `json:"huge_bytes"` // of its map
	}
	if err := json.Unmarshal(out, &got); err != nil || got.Ops == 0 || got.Seconds <= 0 {
		return report.Sample{}, fmt.Errorf("%w: the client in C: %.200q", ErrProtocol, out)
	}
	ops := got.Ops * uint64(batch)
	return report.Sample{
		Ops: ops, Seconds: got.Seconds, Rate: float64(ops) / got.Seconds,
		P50: got.P50 / 1e3, P90: got.P90 / 1e3, P99: got.P99 / 1e3, P999: got.P999 / 1e3, Max: got.Max / 1e3,
		ClientCPU: got.CPU / 1e3 / float64(ops), HugeBytes: got.Huge,
	}, nil
}
