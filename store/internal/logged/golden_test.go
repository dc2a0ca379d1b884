package logged

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The bytes of writes as golden dumps: a change of the format is a change of these files,
// seen in review, and a reason to raise Format. Rewrite them with
//
//	go test ./store/internal/logged -run TestFormat -args -rewrite
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
	switch d.Cmd {
	case "write":
		f, err := goldenFlight(d)
		if err != nil {
			return "", err
		}
		b := put(f)
		if len(b) == 0 {
			return "nothing\n", nil
		}
		said, err := describe(b)
		return dump(b) + said, err
	case "pieces":
		f, err := goldenFlight(d)
		if err != nil {
			return "", err
		}
		p := pieces(f, pieceHead+int(goldenNumber(d, "room", 8)))
		var s strings.Builder
		for _, at := range p.at {
			fmt.Fprintf(&s, "at %d:\n%s", at, dump(p.pieces[at]))
		}
		said, err := describe(p.body)
		return s.String() + "the write:\n" + dump(p.body) + said, err
	case "parse":
		b, err := undump(d.Input)
		if err != nil {
			return "", err
		}
		return describe(b)
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

// goldenFlight makes a flight of lines: kind "key" "value" expiry unlist due; a minus in
// front of the kind says that it has no effect. Arguments say the rest.
func goldenFlight(d *datadriven.TestData) (*flight.Flight, error) {
	num := func(name string, def uint64) uint64 { return goldenNumber(d, name, def) }
	var list []base.Effect
	for line := range strings.Lines(d.Input) {
		var e base.Effect
		var kind, key, value string
		if _, err := fmt.Sscanf(line, "%s %q %q %d %d %d", &kind, &key, &value, &e.Expiry, &e.Unlist, &e.Due); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		name, noop := strings.CutPrefix(kind, "-")
		for e.Noop = noop; e.Kind.String() != name; e.Kind++ {
		}
		e.Key = []byte(key)
		if e.Kind != base.OpDelete {
			e.Value = []byte(value)
		}
		if table := num("table", 0); table != 0 && !noop && e.Kind != base.OpDelete {
			e.Bytes = &base.Bytes{Table: table, Number: uint32(len(list)), Offset: 4242, Length: 70_000, Sum: 0x0123456789abcdef}
		}
		list = append(list, e)
	}
	f := numbered(uint16(num("shard", 3)), layout.MakeVersion(uint16(num("epoch", 1)), num("first", 7)), list...)
	if len(list) == 0 {
		f.Noop = true
	}
	if seq := num("seq", 0); seq != 0 {
		f.Op = &base.Op{ID: base.RequestID{Owner: uint32(num("owner", 0)), Slot: uint16(num("slot", 2)), Seq: seq}}
		copy(f.Op.ID.Client[:], "client of a test")
		f.Result = &base.Result{
			Version: f.Version, Existed: num("existed", 0) == 1, Err: outcomes[num("outcome", 0)],
			Actual: layout.Version(num("actual", 0)), Part: int(num("part", 0)), Number: int64(num("number", 0)),
		}
	}
	for i := range num("forget", 0) {
		k := base.SlotKey{Slot: uint16(i)}
		copy(k.Client[:], "client that left")
		f.Forget = append(f.Forget, k)
	}
	return f, nil
}

// goldenNumber returns an argument of a command.
func goldenNumber(d *datadriven.TestData, name string, def uint64) uint64 {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			if _, err := fmt.Sscan(a.Vals[0], &def); err != nil {
				panic(err)
			}
		}
	}
	return def
}

// outcomes are the ways in which a write ends that has a result, as a record numbers them.
var outcomes = []error{nil, base.ErrCondition, base.ErrNotNumber, base.ErrNumberRange}

// describe says what Parse made of a body.
func describe(b []byte) (string, error) {
	w, err := Parse(b)
	if err != nil {
		return "", err
	}
	var s strings.Builder
	fmt.Fprintf(&s, "write %v in shard %d\n", w.Version, w.Shard)
	for e := range w.Effects {
		fmt.Fprintf(&s, "%v noop %v %q = %q version %v expiry %d unlist %d due %d", e.Kind, e.Noop, e.Key, e.Value, e.Version, e.Expiry, e.Unlist, e.Due)
		if e.Apart {
			fmt.Fprintf(&s, " apart, %d bytes", Length(&e))
		}
		if e.Bytes != nil {
			fmt.Fprintf(&s, " in a table, %+v", *e.Bytes)
		}
		s.WriteByte('\n')
	}
	if k, r, ok := w.Result(); ok {
		var b [dedup.ValueLen]byte
		r.Encode(b[:])
		fmt.Fprintf(&s, "result of slot %d of %q: %x\n", k.Slot, k.Client, b)
	}
	for k := range w.Forget {
		fmt.Fprintf(&s, "forget slot %d of %q\n", k.Slot, k.Client)
	}
	return s.String(), nil
}

// dump shows bytes word by word: the bytes in order, the word's value, and the characters.
func dump(b []byte) string {
	var s strings.Builder
	for off := 0; off < len(b); off += 8 {
		part := b[off:min(off+8, len(b))]
		var word [8]byte
		copy(word[:], part)
		fmt.Fprintf(&s, "%4d │ %-23s │ %016x │ ", off, fmt.Sprintf("% x", part), binary.LittleEndian.Uint64(word[:]))
		for _, c := range part {
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
func undump(text string) (b []byte, err error) {
	for line := range strings.Lines(text) {
		part := strings.Split(line, "│")
		if len(part) < 2 {
			return nil, fmt.Errorf("%q is no line of a dump", line)
		}
		word, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(part[1]), " ", ""))
		if err != nil {
			return nil, err
		}
		b = append(b, word...)
	}
	return b, nil
}
