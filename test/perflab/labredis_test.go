package perflab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const redisPort = "17379"

// A redis is a Redis server in this guest, without persistence.
type redis struct {
	dir  string
	proc *os.Process
}

// startRedis starts the programs that "lab fetch" has put into -redis: they run
// with the libraries that lie beside them.
func startRedis(t *testing.T, ctx context.Context) *redis {
	r := &redis{dir: *redisFlag}
	cmd := r.command(ctx, "redis-server", "--port", redisPort, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir(), "--loglevel", "warning")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.proc = cmd.Process
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("redis-server: %v\n%s", err, said.Bytes())
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", "127.0.0.1:"+redisPort)
		if err == nil {
			c.Close()
			return r
		}
		if time.Now().After(end) {
			t.Fatalf("redis-server does not listen: %v", err)
		}
	}
}

// command runs a program of the directory, by the linker of the guest.
func (r *redis) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(r.dir, "bin", program), args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(r.dir, "lib"))
	return cmd
}

func (r *redis) version(ctx context.Context) string {
	out, err := r.command(ctx, "redis-server", "--version").Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

// bench is redis-benchmark, whose last line is the rate.
func (r *redis) bench(ctx context.Context, args ...string) (float64, error) {
	out, err := r.command(ctx, "redis-benchmark", append([]string{"-p", redisPort, "--csv"}, args...)...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w\n%s", err, out)
	}
	return parseRedisBenchmark(out)
}

var errNoRate = errors.New("perflab: no rate in redis-benchmark's output")

// parseRedisBenchmark reads the column rps of the last row of --csv.
func parseRedisBenchmark(out []byte) (float64, error) {
	rate := 0.0
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if len(fields) < 2 {
			continue
		}
		if v, err := strconv.ParseFloat(strings.Trim(fields[1], `"`), 64); err == nil {
			rate = v
		}
	}
	if rate <= 0 {
		return 0, fmt.Errorf("%w:\n%s", errNoRate, out)
	}
	return rate, nil
}

func TestParseRedisBenchmark(t *testing.T) {
	for out, want := range map[string]float64{
		"\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"51282.05\",\"0.3\"\n": 51282.05,
		"\"GET\",\"10.50\"\n": 10.5,
		"Could not connect\n": 0,
		"":                    0,
	} {
		got, err := parseRedisBenchmark([]byte(out))
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", out, got, err)
		}
	}
}

// A respConn is one connection that asks one thing at a time.
type respConn struct {
	conn  net.Conn
	in    *bufio.Reader
	spin  bool
	raw   syscall.RawConn
	out   []byte
	reply []byte
}

// dial connects. With spin the client never sleeps: it asks the socket again and
// again.
func (r *redis) dial(t *testing.T, spin bool) *respConn {
	c, err := net.Dial("tcp", "127.0.0.1:"+redisPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	rc := &respConn{conn: c, spin: spin, reply: make([]byte, 1<<20)}
	if rc.raw, err = c.(*net.TCPConn).SyscallConn(); err != nil {
		t.Fatal(err)
	}
	rc.in = bufio.NewReaderSize(rc, 1<<17)
	return rc
}

// Read reads from the socket, which is non-blocking.
func (c *respConn) Read(p []byte) (n int, err error) {
	if !c.spin {
		return c.conn.Read(p)
	}
	if e := c.raw.Read(func(fd uintptr) bool {
		for {
			if n, err = syscall.Read(int(fd), p); err != syscall.EAGAIN {
				return true
			}
		}
	}); e != nil {
		return 0, e
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

func (c *respConn) command(words ...[]byte) error {
	c.out = fmt.Appendf(c.out[:0], "*%d\r\n", len(words))
	for _, w := range words {
		c.out = fmt.Appendf(c.out, "$%d\r\n", len(w))
		c.out = append(append(c.out, w...), "\r\n"...)
	}
	_, err := c.conn.Write(c.out)
	return err
}

func (c *respConn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] == '-' {
		return nil, fmt.Errorf("redis: %q", line)
	}
	return line, nil
}

func (c *respConn) set(key, value []byte) error {
	if err := c.command([]byte("SET"), key, value); err != nil {
		return err
	}
	_, err := c.line()
	return err
}

// get returns the value, valid until the next call.
func (c *respConn) get(key []byte) ([]byte, error) {
	if err := c.command([]byte("GET"), key); err != nil {
		return nil, err
	}
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || line[0] != '$' || n < 0 || n+2 > len(c.reply) {
		return nil, fmt.Errorf("redis: %q in answer to GET", line)
	}
	if _, err := io.ReadFull(c.in, c.reply[:n+2]); err != nil {
		return nil, err
	}
	return c.reply[:n], nil
}
