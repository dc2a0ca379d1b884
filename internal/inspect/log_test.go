package inspect

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/store/log"
)

// goldenBytes returns the bytes of a dump in the golden files of the log's format: of the
// first one behind a command.
func goldenBytes(t *testing.T, file, command string) (b []byte) {
	t.Helper()
	text, err := os.ReadFile("../../store/log/internal/format/testdata/format/" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n"+command+"\n")
	if !ok {
		t.Fatalf("%s has no %q", file, command)
	}
	for line := range strings.Lines(rest) {
		part := strings.Split(line, "│")
		if len(part) < 2 && len(b) > 0 {
			return b
		}
		if len(part) >= 2 {
			w, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(part[1]), " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, w...)
		}
	}
	return b
}

const segment7 = "00000007.seg"

// goldenLog makes a log of the golden bytes: one segment with two frames, the second of
// which bad changes if it is not nil.
func goldenLog(t *testing.T, bad func(second []byte)) string {
	t.Helper()
	dir := t.TempDir()
	b := make([]byte, 64<<10)
	copy(b, goldenBytes(t, "header", "header segment=7"))
	copy(b[4096:], goldenBytes(t, "frame", "frame"+"\nwrite 1 0 258 0 \"hello\""))
	copy(b[8192:], goldenBytes(t, "frame", "frame offset=8192 number=2"))
	if bad != nil {
		bad(b[8192:])
	}
	life := make([]byte, 128<<10) // one of its copies is enough
	copy(life, goldenBytes(t, "life", "life seen=3 end=0x700002070"))
	if bad != nil {
		clear(life)
		copy(life, goldenBytes(t, "life", "life"))
	}
	for name, b := range map[string][]byte{"LIFE": life, segment7: b, "3.free": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLog: what is shown of a log, record by record.
func TestLog(t *testing.T) {
	dir := goldenLog(t, nil)
	var out bytes.Buffer
	if err := Log(t.Context(), &out, dir, LogOptions{Records: true}); err != nil {
		t.Fatal(err)
	}
	want := `7+1040             stream 1       write          5 B  index 258  term 0
7+1070             stream 2       entry          8 B  index 17  term 4
7+10a0             stream 2       fact           0 B  name 0x1
7+2040             stream 1       write          5 B  index 258  term 0
segment    00000007.seg
store      73746f7265206f662074686520746573
life       3, epoch 9, made 2023-11-14T22:13:20Z
size       65536 bytes of 67108864
begins     behind 6+100000
ends       at offset 8304, last
frames     2, 0 of them without records, 312 bytes
durable    7+1000
stream     1: 2 writes, 0 entries, 0 facts, 10 bytes
stream     2: 0 writes, 1 entries, 1 facts, 8 bytes

log        ` + dir + `
life       3, epoch 9, ended cleanly at 7+2070
segments   1, 1 free files
end        7+2070
shown      1 segments, 2 frames, 4 records, 18 bytes of bodies
problems   0
`
	if out.String() != want {
		t.Errorf("got\n%s\nexpected\n%s", out.String(), want)
	}
}

// TestLogJSON: one object a line, with neither what a record holds nor the salt.
func TestLogJSON(t *testing.T) {
	var out bytes.Buffer
	if err := Log(t.Context(), &out, goldenLog(t, nil), LogOptions{Records: true, JSON: true}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var all struct {
		Position     string `json:"position"`
		File, Ending string
		Frames       int
		Records      int
		Streams      []streamLine
	}
	for _, l := range lines {
		if err := json.Unmarshal([]byte(l), &all); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
	}
	if len(lines) != 6 || all.Position != "7+2040" || all.File != segment7 || all.Ending != "last" || all.Frames != 2 || all.Records != 4 || len(all.Streams) != 2 {
		t.Errorf("%d lines, together %+v", len(lines), all)
	}
	for _, secret := range []string{"hello", "an entry", "1122334455667788", "8877665544332211", "1234605616436508552", `"salt"`} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("the output has %q:\n%s", secret, out.String())
		}
	}
}

// TestLogEnds: a torn end is none of the log's faults; damage is an error behind the
// report, which tells no checksum: checksums are made with the salt.
func TestLogEnds(t *testing.T) {
	var out bytes.Buffer
	if err := Log(t.Context(), &out, goldenLog(t, func(b []byte) { b[64+40]++ }), LogOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := "ends       at offset 4296, torn: record 1 of 1: the checksum does not hold\n"; !strings.Contains(out.String(), want) {
		t.Errorf("the output lacks %q:\n%s", want, out.String())
	}
	dir := goldenLog(t, nil)
	file := filepath.Join(dir, segment7)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[40]++
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, opt := range []LogOptions{{}, {JSON: true}} {
		out.Reset()
		err = Log(t.Context(), &out, dir, opt)
		if !errors.Is(err, log.ErrDamaged) || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "the log is damaged in 2 places, first: log: damaged file 00000007.seg: its header: the checksum does not hold") {
			t.Errorf("a damaged header: %v", err)
		}
		if !strings.Contains(out.String(), "its header: the checksum does not hold") || !strings.Contains(out.String(), "problem") {
			t.Errorf("no report:\n%s", out.String())
		}
	}
	if err := os.Remove(filepath.Join(dir, "LIFE")); err != nil {
		t.Fatal(err)
	}
	if err := Log(t.Context(), &out, dir, LogOptions{}); err == nil || !strings.HasPrefix(err.Error(), "the log is damaged in 2 places, first: log: damaged file LIFE: it is missing") {
		t.Error(err)
	}
}

// TestLogNothing: one line for what is no log.
func TestLogNothing(t *testing.T) {
	dir := t.TempDir()
	if err := Log(t.Context(), &bytes.Buffer{}, dir, LogOptions{}); !errors.Is(err, log.ErrNoLog) || !strings.HasPrefix(err.Error(), dir+": ") {
		t.Error(err)
	}
	if err := Log(t.Context(), &bytes.Buffer{}, filepath.Join(dir, "no"), LogOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := Log(t.Context(), &bytes.Buffer{}, goldenLog(t, nil), LogOptions{Segment: 8}); err == nil || !strings.Contains(err.Error(), "no segment 00000008.seg") {
		t.Error(err)
	}
	if err := Log(t.Context(), failingWriter{}, goldenLog(t, nil), LogOptions{}); err == nil {
		t.Error("a report that could not be written is no error")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no") }

// TestParseSegment: a segment is named by its file or by its number.
func TestParseSegment(t *testing.T) {
	for s, want := range map[string]uint64{"0000002a.seg": 42, "42": 42, "0x2a": 42, "ffffffff": 0, "": 0, "0": 0, "-1": 0, "x.seg": 0, "4294967296": 0, "00000000.seg": 0} {
		if n, err := ParseSegment(s); n != want && want != 0 || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
}
