package bench

import (
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A redis is a redis-server that was started as a yardstick.
type redis struct{ port string }

// startRedis starts one on a directory of its own, with appendfsync always or
// without any persistence; nil if it is not installed.
func startRedis(b *testing.B, durable bool) *redis {
	b.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil
	}
	if _, err := exec.LookPath("redis-benchmark"); err != nil {
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	args := []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", b.TempDir(), "--appendonly"}
	if durable {
		args = append(args, "yes", "--appendfsync", "always")
	} else {
		args = append(args, "no")
	}
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, so it fails
	})
	for range 100 {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			c.Close()
			return &redis{port: port}
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.Fatal("redis-server does not listen")
	return nil
}

// set has redis-benchmark set keys over so many connections. The rate is its
// own figure, so that its start does not count.
func (r *redis) set(b *testing.B, connections, size int) (time.Duration, int64) {
	n := int64(20_000)
	if connections == 1 {
		n = 5000
	}
	out, err := exec.Command("redis-benchmark", "-p", r.port, "-c", strconv.Itoa(connections),
		"-n", fmt.Sprint(n), "-d", strconv.Itoa(size), "-r", strconv.Itoa(putKeys), "-t", "set", "--csv").Output()
	if err != nil {
		b.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Split(lines[len(lines)-1], ",")
	if len(fields) < 2 {
		b.Fatalf("redis-benchmark said %q", out)
	}
	perSecond, err := strconv.ParseFloat(strings.Trim(fields[1], `"`), 64)
	if err != nil || perSecond <= 0 {
		b.Fatalf("redis-benchmark said %q: %v", out, err)
	}
	return time.Duration(float64(n) / perSecond * float64(time.Second)), n
}
