package bench

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The floor in two processes: a Go program that answers requests of the size of
// an iWARP READ request with answers of the size of the READ response, over TCP.
// Nothing is parsed, hashed or checked. Both ends wait alike: asleep in the
// netpoller, or in a loop of reads that do not block.

// serveFloor is set in the environment of the process that answers.
const serveFloor = "RDMAKV_BENCH_FLOOR"

// A floorHello opens a connection to it.
type floorHello struct {
	Request, Response uint32
	Spin              bool
	Streams           uint32 // answers without being asked, that many at a time
}

func floorMain() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerFloor(conn.(*net.TCPConn))
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return l.Close()
}

func answerFloor(conn *net.TCPConn) {
	defer conn.Close()
	var h floorHello
	if binary.Read(conn, binary.LittleEndian, &h) != nil {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	in, out := make([]byte, h.Request), make([]byte, h.Response)
	for {
		if err := readFloor(conn, raw, in, h.Spin); err != nil {
			return
		}
		for range max(1, h.Streams) {
			if _, err := conn.Write(out); err != nil {
				return
			}
		}
	}
}

// floorPatience is for how long a spinning end spins: beyond it the other side
// of the comparison has its turn, and must find the processor free.
const floorPatience = 200 * time.Microsecond

// readFloor fills b.
func readFloor(conn *net.TCPConn, raw syscall.RawConn, b []byte, spin bool) error {
	for end := time.Now().Add(floorPatience); spin && len(b) > 0 && time.Now().Before(end); {
		var n int
		var err error
		if ctl := raw.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), b) }); ctl != nil {
			return ctl
		}
		switch {
		case err == nil && n == 0:
			return io.EOF
		case err == nil:
			b = b[n:]
		case err != syscall.EAGAIN && err != syscall.EINTR:
			return err
		}
	}
	_, err := io.ReadFull(conn, b)
	return err
}

// A floor is the asking end.
type floor struct {
	conn    *net.TCPConn
	raw     syscall.RawConn
	req     []byte
	resp    []byte
	spin    bool
	streams int
}

// startFloor starts the other process and returns where it listens.
func startFloor(b *testing.B) string {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveFloor+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(string(line[:n]))
}

func dialFloor(b *testing.B, addr string, h floorHello) *floor {
	b.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	f := &floor{conn: conn.(*net.TCPConn), req: make([]byte, h.Request), resp: make([]byte, h.Response), spin: h.Spin, streams: int(max(1, h.Streams))}
	if f.raw, err = f.conn.SyscallConn(); err != nil {
		b.Fatal(err)
	}
	if err := binary.Write(conn, binary.LittleEndian, h); err != nil {
		b.Fatal(err)
	}
	return f
}

func (f *floor) round(b *testing.B) {
	if _, err := f.conn.Write(f.req); err != nil {
		b.Fatal(err)
	}
	for range f.streams {
		if err := readFloor(f.conn, f.raw, f.resp, f.spin); err != nil {
			b.Fatal(err)
		}
	}
}
