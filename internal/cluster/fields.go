package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed marks every error about bytes or values that do not keep to a
// format: what a peer sent, or what the caller put together.
var ErrMalformed = errors.New("cluster: malformed")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

var le = binary.LittleEndian

// A fields reads an encoding field by field. It keeps the first fault, so
// that a parser reads as a list of fields with a check where a number decides
// how much follows. It never looks past the end.
type fields struct {
	b   []byte
	err error
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
	f.b = nil
}

// take returns the next n bytes, or nil after a fault.
func (f *fields) take(n int) []byte {
	if len(f.b) < n {
		f.fail(malformed("%d bytes are missing", n-len(f.b)))
		return nil
	}
	out := f.b[:n:n]
	f.b = f.b[n:]
	return out
}

func (f *fields) u8() uint8 {
	if b := f.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) u16() uint16 {
	if b := f.take(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (f *fields) u32() uint32 {
	if b := f.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (f *fields) u64() uint64 {
	if b := f.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// text reads one length byte and that many bytes.
func (f *fields) text() string { return string(f.take(int(f.u8()))) }

// zero skips n reserved bytes, which must be zero.
func (f *fields) zero(n int) {
	for _, c := range f.take(n) {
		if c != 0 {
			f.fail(malformed("a reserved byte is %#x", c))
			return
		}
	}
}

// format reads the format byte.
func (f *fields) format(what string, want uint8) {
	if got := f.u8(); f.err == nil && got != want {
		f.fail(malformed("%s of format %d; this build knows format %d: upgrade the older end", what, got, want))
	}
}

// room checks a count from outside: n entries of at least size bytes each must
// be there, before memory is allocated for them.
func (f *fields) room(n, size int) bool {
	if f.err == nil && n > len(f.b)/size {
		f.fail(malformed("%d entries cannot stand in %d bytes", n, len(f.b)))
	}
	return f.err == nil
}

// done returns the first fault; leftover bytes are one.
func (f *fields) done() error {
	if f.err == nil && len(f.b) != 0 {
		f.err = malformed("%d bytes too many", len(f.b))
	}
	return f.err
}

// appendText appends a text. A text that does not fit is a broken invariant,
// because every value is checked before it is encoded.
func appendText(dst []byte, s string) []byte {
	if len(s) > 255 {
		panic(fmt.Sprintf("cluster: text of %d bytes", len(s)))
	}
	return append(append(dst, byte(len(s))), s...)
}
