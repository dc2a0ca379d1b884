package perf

import (
	"fmt"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// Op is what a test does.
type Op uint8

const (
	Read Op = iota + 1
	Write
	Send
)

func (o Op) String() string {
	switch o {
	case Read:
		return "read"
	case Write:
		return "write"
	case Send:
		return "send"
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Kind is what a test measures.
type Kind uint8

const (
	Latency Kind = iota + 1
	Bandwidth
)

func (k Kind) String() string {
	switch k {
	case Latency:
		return "lat"
	case Bandwidth:
		return "bw"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Bounds of a test, whatever the server allows. They keep the arithmetic of
// buffers far from overflow.
const (
	MaxSize       = 1 << 28 // bytes of a message
	MaxDepth      = 8192    // messages in flight
	MaxIterations = 1 << 40
	MaxDuration   = 24 * time.Hour
)

// Params describe one test. Zero fields take the defaults of Fill.
type Params struct {
	Op   Op
	Kind Kind
	// Size is the payload of a message in bytes.
	Size int
	// Depth is how many messages are in flight at most (perftest --tx-depth);
	// 1 in a latency test.
	Depth int
	// Batch is how many are posted with one doorbell (perftest --post_list).
	Batch int
	// SignalEvery asks for a completion of every n-th message only
	// (perftest --cq-mod).
	SignalEvery int
	// Iterations is the number of messages to measure, unless Duration is
	// given, which then says how long to measure.
	Iterations uint64
	Duration   time.Duration
	// Warmup is the number of messages before the measurement.
	Warmup uint64
	// Events waits for completions in the completion channel instead of
	// polling, at both ends (perftest --events). A fabric in software, whose
	// own goroutines need the processor, is never polled.
	Events bool
	// Inline is the largest payload that is sent inline, in bytes, as far as
	// the device can; 0 means the default and a negative number none.
	Inline int
}

// Name is the name of perftest's program for the test, without its "ib_".
func (p Params) Name() string { return p.Op.String() + "_" + p.Kind.String() }

// ParseTest reads a name such as "read_lat".
func ParseTest(s string) (Op, Kind, error) {
	for _, o := range []Op{Read, Write, Send} {
		for _, k := range []Kind{Latency, Bandwidth} {
			if s == (Params{Op: o, Kind: k}).Name() {
				return o, k, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("there is no test %q; there are: %s", s, strings.Join(Tests(), ", "))
}

// Tests lists the names of all tests.
func Tests() (names []string) {
	for _, k := range []Kind{Latency, Bandwidth} {
		for _, o := range []Op{Read, Write, Send} {
			names = append(names, Params{Op: o, Kind: k}.Name())
		}
	}
	return names
}

// defaultInline is below what perftest sends inline in its latency tests (220
// and 236 bytes), a size that any device which can inline at all takes.
const defaultInline = 188

// Fill sets the defaults: 64 bytes, polling, 10,000 turns one at a time; or
// 5,000 messages, 128 of them in flight, one a doorbell, each signaled.
func (p *Params) Fill() {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&p.Size, 64)
	set(&p.Batch, 1)
	set(&p.SignalEvery, 1)
	if p.Kind == Latency {
		p.Depth = 1
		set(&p.Inline, defaultInline)
	}
	set(&p.Depth, 128)
	if p.Inline < 0 || p.Op == Read {
		p.Inline = 0
	}
	if p.Iterations == 0 && p.Duration == 0 {
		p.Iterations = 5000
		if p.Kind == Latency {
			p.Iterations = 10_000
		}
	}
}

// Check says what is wrong with filled parameters: rdma.ErrInvalid.
func (p Params) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", rdma.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case p.Op < Read || p.Op > Send || p.Kind < Latency || p.Kind > Bandwidth:
		return bad("there is no test %s", p.Name())
	case p.Size < 1 || p.Size > MaxSize:
		return bad("size %d is not within 1 and %d", p.Size, MaxSize)
	case p.Depth < 1 || p.Depth > MaxDepth:
		return bad("depth %d is not within 1 and %d", p.Depth, MaxDepth)
	case p.Kind == Latency && (p.Depth != 1 || p.Batch != 1):
		return bad("a latency test has one message in flight")
	case p.Op == Write && p.Kind == Latency && p.Events:
		return bad("write_lat looks at memory, for which there are no events")
	case p.Batch < 1 || p.Batch > p.Depth:
		return bad("batch %d is not within 1 and the depth, %d", p.Batch, p.Depth)
	case p.SignalEvery < 1 || p.SignalEvery > p.Depth:
		return bad("a completion for every %d messages is not within 1 and the depth, %d", p.SignalEvery, p.Depth)
	case p.Iterations > MaxIterations || p.Warmup > MaxIterations:
		return bad("%d and %d messages are beyond %d", p.Iterations, p.Warmup, uint64(MaxIterations))
	case p.Duration < 0 || p.Duration > MaxDuration:
		return bad("duration %v is not within 0 and %v", p.Duration, MaxDuration)
	case p.Iterations == 0 && p.Duration == 0:
		return bad("neither a number of messages nor a duration")
	}
	return nil
}

// Needs are the capabilities that a test needs of both devices.
func (p Params) Needs() rdma.Caps {
	if p.Op == Write {
		return rdma.CapWrite
	}
	return 0
}

// capable names a capability that a device lacks: rdma.ErrNotSupported.
func (p Params) capable(a rdma.DeviceAttr) error {
	if !a.Caps.Has(p.Needs()) {
		return fmt.Errorf("%w: %s needs RDMA WRITE", rdma.ErrNotSupported, p.Name())
	}
	if uint64(p.Size) > uint64(a.MaxMsgSize) {
		return fmt.Errorf("%w: messages of %d bytes, the device takes %d", rdma.ErrNotSupported, p.Size, a.MaxMsgSize)
	}
	return nil
}

// bufferBudget bounds the memory of one end of a test in bytes, unless a
// single message is larger.
const bufferBudget = 4 << 20

// stride is the distance of messages in a buffer: whole cache lines.
func stride(size int) int { return (size + 63) &^ 63 }

// slots is how many messages the buffers of a test have room for; messages take
// turns in them. Both ends compute it from the same numbers.
func slots(size, depth int) int { return min(max(bufferBudget/stride(size), 1), depth) }
