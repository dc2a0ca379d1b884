package log

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

// Position is a byte of the log; see package format. Positions compare as numbers.
type Position = format.Position

// Record is one record of the log.
type Record = format.Record

// Kind says what a record is.
type Kind = format.Kind

// The kinds of records.
const (
	Write = format.Write // what a stream appends, in its own words
	Entry = format.Entry // an entry of a replicated stream, with index and term
	Fact  = format.Fact  // the newest value of a name
)

// Sync says when what was written is durable.
type Sync uint8

const (
	// Always: Turn returns when the frame is durable.
	Always Sync = iota
	// Interval: Turn returns when the kernel has the frame, and everything is synced each
	// Config.Interval. A killed process loses nothing, a power cut at most an interval.
	Interval
	// Off: Turn returns when the kernel has the frame. A killed process loses nothing, a
	// power cut what the kernel had not written by itself.
	Off
)

// String names the policy as config.yaml does.
func (s Sync) String() string {
	switch s {
	case Always:
		return "always"
	case Interval:
		return "interval"
	case Off:
		return "off"
	}
	return fmt.Sprintf("sync(%d)", uint8(s))
}

// Config is how a log is opened. Zero values are defaults.
type Config struct {
	Dir   Dir      // in which it stands
	Store [16]byte // the id of the store; another one's log is refused
	// Create makes a log where there is none. A log that is missing is damage otherwise.
	Create bool
	// ReadOnly looks at a log that nobody writes, and changes nothing; Start is refused.
	ReadOnly bool

	Sync     Sync
	Interval time.Duration // with Interval; 1 s

	SegmentSize int64 // bytes of a segment's file; 64 MiB
	MaxFrame    int64 // bytes of a frame at most; 8 MiB, a quarter of SegmentSize at most
	// MaxBytes bounds the segments in force, in bytes: what a start reads, and what
	// stands on the disk beside the free files. At least 4 segments; 8 of them.
	MaxBytes int64
	// Window is how many frames are on their way to the disk at once, and so how far
	// anybody writes ahead of one that is not durable. 2.
	Window int

	// Reach is up to where the log was durable for sure, by what the caller knows from
	// elsewhere (a ledger, a checkpoint). A log that ends before it is damaged. So who makes
	// a checkpoint calls Sync first, in every policy.
	Reach Position
	// From is where the caller's checkpoint stands: the log must have everything behind
	// it. 0: the caller has none, and the log must reach back to its beginning. With
	// checkpoints of several streams it is the highest position up to which all of them
	// have what is theirs; segments go no further than From and Release have said.
	From Position

	Logger *slog.Logger
	Rand   io.Reader        // of salts; crypto/rand
	Now    func() time.Time // for people who look at headers
}

const (
	defaultSegment  = 64 << 20
	minSegment      = 1 << 20
	defaultMaxFrame = 8 << 20
	minSegments     = 4 // of MaxBytes
	maxWindow       = 64
)

// withDefaults fills in what is zero, and refuses what cannot be.
func (c Config) withDefaults() (Config, error) {
	def := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.SegmentSize, defaultSegment)
	def(&c.MaxFrame, min(defaultMaxFrame, c.SegmentSize/4))
	def(&c.MaxBytes, 8*c.SegmentSize)
	if c.Interval == 0 {
		c.Interval = time.Second
	}
	if c.Window == 0 {
		c.Window = 2
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case c.Dir == nil:
		return c, fmt.Errorf("log: no directory")
	case c.Sync > Off:
		return c, fmt.Errorf("log: unknown policy %v", c.Sync)
	case c.Interval < 0:
		return c, fmt.Errorf("log: an interval of %v", c.Interval)
	case c.SegmentSize < minSegment || c.SegmentSize > format.MaxSize || c.SegmentSize%format.MaxBlock != 0:
		return c, fmt.Errorf("log: segments of %d bytes: take a multiple of %d from %d to %d", c.SegmentSize, format.MaxBlock, minSegment, int64(format.MaxSize))
	case c.MaxFrame < format.MaxBlock || c.MaxFrame > c.SegmentSize/4 || c.MaxFrame%format.MaxBlock != 0:
		return c, fmt.Errorf("log: frames of %d bytes: take a multiple of %d up to a quarter of a segment (%d)", c.MaxFrame, format.MaxBlock, c.SegmentSize)
	case c.MaxBytes < minSegments*c.SegmentSize:
		return c, fmt.Errorf("log: a bound of %d bytes: take at least %d segments of %d", c.MaxBytes, minSegments, c.SegmentSize)
	case c.Window < 1 || c.Window > maxWindow:
		return c, fmt.Errorf("log: a window of %d frames: take 1 to %d", c.Window, maxWindow)
	}
	return c, nil
}
