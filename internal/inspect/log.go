package inspect

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/log"
)

// LogOptions say what to show of a log.
type LogOptions struct {
	Segment uint64 // the number of one segment; 0: all
	Records bool   // one line for each record
	JSON    bool   // one object a line, the summary last
}

// ParseSegment reads what names a segment: the name of its file, or its number.
func ParseSegment(s string) (uint64, error) {
	name, ok := strings.CutSuffix(s, ".seg")
	base := 0
	if ok {
		base = 16
	}
	n, err := strconv.ParseUint(name, base, 32)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q names no segment: give a file's name (0000002a.seg) or a number (42)", s)
	}
	return n, nil
}

// Log inspects the log at path, which is that of a store's directory or of its log, and writes
// what it finds, segment by segment. It changes nothing, and works on a log that no server could
// open; a store that is served it refuses, because the end of its log is not there yet. It shows neither what a record
// holds, which is a client's, nor the salt of a segment, with which a client could make a
// value that passes for a frame. Damage is listed, and then returned as an error too.
func Log(ctx context.Context, w io.Writer, path string, opt LogOptions) error {
	dir, leave, err := enterLog(path)
	if err != nil {
		return err
	}
	defer leave()
	d, err := log.OpenDir(dir)
	if err != nil {
		return err
	}
	p := logPrinter{w: bufio.NewWriter(w), opt: opt, dir: dir}
	options := log.InspectOptions{Only: opt.Segment, Segment: p.segment}
	if opt.Records {
		options.Record = p.record
	}
	in, err := log.Inspect(ctx, d, options)
	if err == nil {
		err = p.summary(in)
	}
	if flushErr := p.w.Flush(); err == nil && flushErr != nil {
		return fmt.Errorf("write: %w", flushErr)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", dir, err)
	case in.ProblemCount == 1:
		return fmt.Errorf("the log is damaged: %w", in.Problems[0])
	case in.ProblemCount > 1:
		return fmt.Errorf("the log is damaged in %d places, first: %w", in.ProblemCount, in.Problems[0])
	}
	return nil
}

// enterLog finds the directory of a log, and keeps servers out of its store. A log that stands
// somewhere without its store is taken as it is.
func enterLog(path string) (dir string, leave func(), err error) {
	has := func(elem ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{path}, elem...)...))
		return err == nil
	}
	home := path
	switch {
	case has("STORE"):
	case has("..", "STORE") && filepath.Base(filepath.Clean(path)) == "log":
		home = filepath.Dir(filepath.Clean(path))
	case has("log"):
		return filepath.Join(path, "log"), func() {}, nil
	default:
		return path, func() {}, nil
	}
	dir, lock, err := store.EnterLog(home)
	if err != nil {
		return "", nil, err
	}
	return dir, func() {
		if lock != nil {
			lock.Close()
		}
	}, nil
}

// A logPrinter writes what Log finds.
type logPrinter struct {
	w   *bufio.Writer
	opt LogOptions
	dir string

	segments, frames, records int
	bytes                     int64
}

// record shows one record. Records of a segment come before the segment, because it is
// known whether they count only when all of them were read.
func (p *logPrinter) record(r log.Record) error {
	if p.opt.JSON {
		return p.line(encode(struct {
			Position string `json:"position"`
			Stream   uint64 `json:"stream"`
			Kind     string `json:"kind"`
			Index    uint64 `json:"index"`
			Term     uint64 `json:"term"`
			Name     uint16 `json:"name"`
			Size     int    `json:"size"`
		}{r.Position.String(), r.Stream, r.Kind.String(), r.Index, r.Term, r.Name, len(r.Body)}))
	}
	what := fmt.Sprintf("index %d  term %d", r.Index, r.Term)
	if r.Kind == log.Fact {
		what = fmt.Sprintf("name %#x", r.Name)
	}
	return p.line(fmt.Sprintf("%-17v  stream %-6d  %-5v  %9d B  %s\n", r.Position, r.Stream, r.Kind, len(r.Body), what))
}

func (p *logPrinter) line(s string) error {
	_, err := p.w.WriteString(s)
	return err
}

// A streamLine is a stream of a segment in JSON.
type streamLine struct {
	Stream  string `json:"stream"` // its number, or "others"
	Writes  int    `json:"writes"`
	Entries int    `json:"entries"`
	Facts   int    `json:"facts"`
	Bytes   int64  `json:"bytes"`
}

// segment shows a segment, and sums it up for the end.
func (p *logPrinter) segment(s log.InspectedSegment) error {
	p.segments++
	p.frames += s.Frames
	streams := make([]streamLine, 0, len(s.Streams))
	for _, c := range s.Streams {
		l := streamLine{strconv.FormatUint(c.Stream, 10), c.Records[log.Write], c.Records[log.Entry], c.Records[log.Fact], c.Bytes}
		if c.Stream == log.OtherStreams {
			l.Stream = "others"
		}
		p.records += l.Writes + l.Entries + l.Facts
		p.bytes += l.Bytes
		streams = append(streams, l)
	}
	if p.opt.JSON {
		return p.segmentJSON(s, streams)
	}
	fmt.Fprintf(p.w, "segment    %s\n", s.File)
	if s.Err != nil {
		fmt.Fprintf(p.w, "ends       unreadable: %v\n", s.Err)
		return p.line("\n")
	}
	fmt.Fprintf(p.w, `store      %x
life       %d, epoch %d, made %s
size       %d bytes of %d
begins     behind %v
ends       %s
frames     %d, %d of them without records, %d bytes
durable    %v
`, s.Store, s.Life, s.Epoch, s.Made.Format(time.RFC3339), s.Bytes, s.Size, s.Cut, ending(s), s.Frames, s.Empty, s.Used, s.Durable)
	for _, l := range streams {
		fmt.Fprintf(p.w, "stream     %s: %d writes, %d entries, %d facts, %d bytes\n", l.Stream, l.Writes, l.Entries, l.Facts, l.Bytes)
	}
	return p.line("\n")
}

// ending says where and why the frames of a segment end.
func ending(s log.InspectedSegment) string {
	why := s.Ending.String()
	if s.ByLife != 0 {
		why += fmt.Sprintf(" by life %d", s.ByLife)
	}
	if s.Detail != "" {
		why += ": " + s.Detail
	}
	return fmt.Sprintf("at offset %d, %s", s.End.Offset(), why)
}

func (p *logPrinter) segmentJSON(s log.InspectedSegment, streams []streamLine) error {
	bad := ""
	if s.Err != nil {
		bad = s.Err.Error()
	}
	return p.line(encode(struct {
		File    string       `json:"file"`
		Number  uint64       `json:"number"`
		Error   string       `json:"error,omitempty"`
		Store   string       `json:"store"`
		Life    uint64       `json:"life"`
		Epoch   uint64       `json:"epoch"`
		Made    string       `json:"made"` // a time.Time of a year above 9999 cannot be encoded
		Size    int64        `json:"size"`
		Bytes   int64        `json:"file_bytes"`
		Cut     string       `json:"begins_behind"`
		End     int64        `json:"end_offset"`
		Ending  string       `json:"ending"`
		ByLife  uint64       `json:"by_life,omitempty"`
		Detail  string       `json:"detail,omitempty"`
		Durable string       `json:"durable"`
		Frames  int          `json:"frames"`
		Empty   int          `json:"empty_frames"`
		Used    int64        `json:"used_bytes"`
		Streams []streamLine `json:"streams"`
	}{s.File, s.Number, bad, hex.EncodeToString(s.Store[:]), s.Life, s.Epoch, s.Made.Format(time.RFC3339), s.Size, s.Bytes, s.Cut.String(), s.End.Offset(),
		s.Ending.String(), s.ByLife, s.Detail, s.Durable.String(), s.Frames, s.Empty, s.Used, streams}))
}

// summary shows the log as a whole.
func (p *logPrinter) summary(in log.Inspection) error {
	problems := make([]string, 0, len(in.Problems))
	for _, err := range in.Problems {
		problems = append(problems, err.Error())
	}
	if p.opt.JSON {
		return p.line(encode(struct {
			Dir      string   `json:"dir"`
			Life     uint64   `json:"life"`
			Epoch    uint64   `json:"epoch"`
			Clean    bool     `json:"clean_stop"`
			Segments int      `json:"segments"`
			Free     int      `json:"free_files"`
			End      string   `json:"end"`
			Frames   int      `json:"frames"`
			Records  int      `json:"records"`
			Bytes    int64    `json:"bytes"`
			Count    int      `json:"problem_count"`
			Problems []string `json:"problems"`
		}{p.dir, in.Life.Life, in.Life.Epoch, in.Life.Clean, in.Segments, in.Free, in.End.String(), p.frames, p.records, p.bytes, in.ProblemCount, problems}))
	}
	ended := "serves, or ended not cleanly"
	switch {
	case in.Life.Clean:
		ended = fmt.Sprintf("ended cleanly at %v", in.Life.End)
	case in.Life.Life == 0:
		ended = "no start is known"
	}
	fmt.Fprintf(p.w, `log        %s
life       %d, epoch %d, %s
segments   %d, %d free files
end        %v
shown      %d segments, %d frames, %d records, %d bytes of bodies
problems   %d
`, p.dir, in.Life.Life, in.Life.Epoch, ended, in.Segments, in.Free, in.End, p.segments, p.frames, p.records, p.bytes, in.ProblemCount)
	for _, s := range problems {
		fmt.Fprintf(p.w, "           %s\n", s)
	}
	return nil
}
