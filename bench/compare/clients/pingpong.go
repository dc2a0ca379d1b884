package clients

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/internal/perf"
)

// AnswerPingPong answers one connection of l until it is closed. This is the
// floor in Go: any store written in Go on sockets takes at least as long.
func AnswerPingPong(l net.Listener, p PingPong) error { return p.inGo().Serve(l) }

func (p PingPong) inGo() perf.PingPong {
	g := perf.PingPong{Network: p.Network, Spin: p.Spin, Request: p.Request, Answer: p.Answer}
	if p.Network == "tcp" {
		g.Control = alike
	}
	return g
}

// Congestion is the congestion control of every TCP socket of a comparison: the one
// that rdma/iwarp takes for connections within a machine.
const Congestion = "reno"

// alike gives it to a socket of ours. The run's own network has it as its default;
// where that could not be had, at least our ends have it. A system that cannot set
// it goes without.
func alike(fd uintptr) { _ = pace(fd, Congestion) }

// RunPingPong asks at addr for p.Duration, after a tenth of it to warm up.
func RunPingPong(ctx context.Context, addr string, p PingPong) (report.Sample, error) {
	pinger, err := p.inGo().Dial(ctx, addr)
	if err != nil {
		return report.Sample{}, err
	}
	defer pinger.Close()
	defer context.AfterFunc(ctx, func() { pinger.Close() })()
	return sample(p.Duration, pinger.Round)
}

// sample calls f again and again, and times each call: the end of one is the
// beginning of the next. A tenth of d is to warm up, and the time that counts, d,
// begins when that is over. At least one call warms up and one is timed, however long
// they take on a busy machine.
func sample(d time.Duration, f func() error) (report.Sample, error) {
	begin := time.Now()
	clock := func() time.Duration { return time.Since(begin) }
	var last time.Duration
	for warm := true; warm; warm = last < d/10 {
		if err := f(); err != nil {
			return report.Sample{}, err
		}
		last = clock()
	}
	first, took := last, make([]uint32, 0, 1<<16)
	for len(took) == 0 || last-first < d && len(took) < maxSamples {
		if err := f(); err != nil {
			return report.Sample{}, err
		}
		now := clock()
		took = append(took, uint32(min(now-last, 1<<32-1)))
		last = now
	}
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))]) / 1e3 }
	elapsed := (last - first).Seconds()
	return report.Sample{
		Ops: uint64(len(took)), Seconds: elapsed, Rate: float64(len(took)) / elapsed,
		P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: at(1),
	}, nil
}

// maxSamples bounds the memory of a measurement.
const maxSamples = 64 << 20

// A Stream is raw TCP throughput: one end writes without a pause.
type Stream struct {
	Chunk      int    // bytes of a write and of a read
	Congestion string // control of both ends; empty: the system's
	Duration   time.Duration
}

// paced gives a connection the congestion control of the stream.
func (s Stream) paced(conn net.Conn) error {
	if s.Congestion == "" {
		return nil
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(fd uintptr) { err = pace(fd, s.Congestion) })
	return errors.Join(err, ctlErr)
}

// SendStream writes to one connection of l until it is closed.
func SendStream(l net.Listener, s Stream) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := s.paced(conn); err != nil {
		return err
	}
	chunk := make([]byte, s.Chunk)
	for {
		if _, err := conn.Write(chunk); err != nil {
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
				return nil
			}
			return err
		}
	}
}

// ReceiveStream reads from addr; an operation is a chunk.
func ReceiveStream(ctx context.Context, addr string, s Stream) (report.Sample, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return report.Sample{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := s.paced(conn); err != nil {
		return report.Sample{}, err
	}
	chunk := make([]byte, s.Chunk)
	return sample(s.Duration, func() error {
		_, err := io.ReadFull(conn, chunk)
		return err
	})
}
