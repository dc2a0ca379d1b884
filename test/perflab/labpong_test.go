package perflab

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// The floor of everything that goes over TCP: a request and an answer of the same
// sizes as a get's, between two processes that do nothing else.

const pongEnv = "PERFLAB_PONG"

// TestPong is the other process: it answers requests, whose first four bytes say
// how long the answer is to be, until its standard input ends.
func TestPong(t *testing.T) {
	if os.Getenv(pongEnv) == "" {
		t.Skip("is started by TestLabBench")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		l.Close()
	}()
	_, _ = os.Stdout.WriteString("pong at " + l.Addr().String() + "\n")
	answer := make([]byte, 1<<20)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		for request := make([]byte, pingSize); ; {
			if _, err := io.ReadFull(c, request); err != nil {
				break
			}
			if _, err := c.Write(answer[:min(int(binary.LittleEndian.Uint32(request)), len(answer))]); err != nil {
				break
			}
		}
		c.Close()
	}
}

// pingSize is that of a GET of a key of 16 bytes, as Redis is sent it.
const pingSize = 36

func startPong(t *testing.T) string {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestPong$", "-test.v")
	cmd.Env = append(os.Environ(), pongEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the echo: %v", err)
		}
	})
	said := ""
	for buf := make([]byte, 256); !strings.Contains(said, "pong at ") || !strings.HasSuffix(said, "\n"); {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("the echo says %q: %v", said, err)
		}
		said += string(buf[:n])
	}
	_, addr, _ := strings.Cut(strings.TrimSpace(said), "pong at ")
	return addr
}

// ping measures requests and answers of a GET's sizes.
func (b *bench) ping(size int) (report.Sample, error) {
	c, err := net.Dial("tcp", b.pong)
	if err != nil {
		return report.Sample{}, err
	}
	defer c.Close()
	request, answer := make([]byte, pingSize), make([]byte, size)
	binary.LittleEndian.PutUint32(request, uint32(size))
	return latencies(b.ctx, *nFlag, func(int) error {
		if _, err := c.Write(request); err != nil {
			return err
		}
		_, err := io.ReadFull(c, answer)
		return err
	})
}
