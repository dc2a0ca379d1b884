package format

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// The bytes of the log as golden dumps: a change of the format is a change of these files,
// seen in review, and a reason to raise Version. Rewrite them with
//
//	go test ./store/log/internal/format -run TestFormat -args -rewrite
func TestFormat(t *testing.T) {
	datadriven.Walk(t, "testdata/format", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := formatCommand(d)
			if err != nil {
				return out + "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

// formatCommand runs one command of a golden file. Parse takes the bytes of a dump, so the
// files hold the way there and back.
func formatCommand(d *datadriven.TestData) (string, error) {
	num := func(name string, def uint64) uint64 {
		for _, a := range d.CmdArgs {
			if a.Key == name {
				var v uint64
				if _, err := fmt.Sscan(a.Vals[0], &v); err != nil {
					panic(err)
				}
				return v
			}
		}
		return def
	}
	salt := num("salt", testSalt)
	switch d.Cmd {
	case "header":
		h := testHeader(num("segment", 7))
		h.Life, h.Epoch, h.Ahead = num("life", h.Life), num("epoch", h.Epoch), int64(num("ahead", uint64(h.Ahead)))
		b := make([]byte, h.Block)
		PutHeader(b, h)
		got, err := ParseHeader(b)
		return dump(b[:headerLen]) + fmt.Sprintf("%+v\n", got), err
	case "life":
		l := Life{Serial: num("serial", 5), Life: num("life", 3), Seen: num("seen", 2), Epoch: num("epoch", 9), End: Position(num("end", 0)), Made: 1_700_000_000_000_000}
		l.Clean = l.End != 0
		copy(l.Store[:], "store of the test")
		b := make([]byte, LifeLen)
		PutLife(b, l)
		got, err := ParseLife(b)
		return dump(b) + fmt.Sprintf("%+v\n", got), err
	case "frame":
		f := Frame{Position: At(num("segment", 7), int64(num("offset", 4096))), Life: num("life", 3), Durable: At(7, 4096), Number: num("number", 1)}
		b, err := buildFrame(&f, salt, d.Input)
		if err != nil {
			return "", err
		}
		return dump(b) + fmt.Sprintf("%+v\n", f), nil
	case "parse":
		b, err := undump(d.Input)
		if err != nil {
			return "", err
		}
		var out strings.Builder
		f, err := ParseFrame(b, salt, At(num("segment", 7), int64(num("offset", 4096))), num("life", 3), func(r Record) error {
			fmt.Fprintf(&out, "%v %v stream %d name %d index %d term %d body %q\n", r.Position, r.Kind, r.Stream, r.Name, r.Index, r.Term, r.Body)
			return nil
		})
		if err != nil {
			return out.String(), err
		}
		fmt.Fprintf(&out, "%+v, ends at %v\n", f, f.End())
		return out.String(), nil
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

const testSalt = 0x1122334455667788

// testHeader is a header in the middle of a log.
func testHeader(segment uint64) Header {
	h := Header{Block: 4096, Number: segment, Life: 3, Epoch: 9, Salt: testSalt, Size: 64 << 20, Ahead: 16 << 20, Made: 1_700_000_000_000_000}
	copy(h.Store[:], "store of the test")
	if segment > 1 {
		h.Cut, h.Chain = At(segment-1, 1<<20), 0x0102030405060708
		h.Durable = h.Cut
	}
	return h
}

// buildFrame makes a frame of records that are lines: kind stream name index term body.
func buildFrame(f *Frame, salt uint64, text string) ([]byte, error) {
	b := make([]byte, FrameHead)
	for line := range strings.Lines(text) {
		var kind, body string
		var r Record
		if _, err := fmt.Sscanf(line, "%s %d %d %d %d %q", &kind, &r.Stream, &r.Name, &r.Index, &r.Term, &body); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		for k := Write; k <= Fact; k++ {
			if k.String() == kind {
				r.Kind = k
			}
		}
		b = appendRecord(b, r, []byte(body))
	}
	SealFrame(b, f, salt)
	return b, nil
}

// appendRecord adds a record to a frame that is not sealed. The buffer was used before, as
// a writer's is: what PutRecord does not write shows.
func appendRecord(b []byte, r Record, body []byte) []byte {
	at, n := len(b), RecordSize(len(body))
	b = append(b, bytes.Repeat([]byte{0xee}, n)...)
	copy(PutRecord(b[at:at+n], &r, len(body)), body)
	return b
}

// dump shows bytes word by word: the bytes in order, the word's value, and the characters.
func dump(b []byte) string {
	var s strings.Builder
	for off := 0; off < len(b); off += 8 {
		fmt.Fprintf(&s, "%4d │ % x │ %016x │ ", off, b[off:off+8], binary.LittleEndian.Uint64(b[off:]))
		for _, c := range b[off : off+8] {
			if c < ' ' || c > '~' {
				c = '.'
			}
			s.WriteByte(c)
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// undump returns the bytes of a dump: what stands in its second column.
func undump(text string) ([]byte, error) {
	var b []byte
	for line := range strings.Lines(text) {
		part := strings.Split(line, "│")
		if len(part) < 2 {
			return nil, fmt.Errorf("%q is no line of a dump", line)
		}
		w, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(part[1]), " ", ""))
		if err != nil {
			return nil, err
		}
		b = append(b, w...)
	}
	return b, nil
}
