package wire

import "encoding/binary"

// A fields reads the fixed part of a body field by field and then the byte
// strings behind it. It keeps the first fault, so that a parser reads as a
// list of fields with one check at its end. It never allocates and never looks
// past the end.
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

// take returns the next n bytes, or nil after a fault. n comes from a peer.
func (f *fields) take(n uint64) []byte {
	if uint64(len(f.b)) < n {
		f.fail(ErrShort)
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
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (f *fields) u32() uint32 {
	if b := f.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (f *fields) u64() uint64 {
	if b := f.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// flag reads a byte that is 0 or 1.
func (f *fields) flag() bool {
	v := f.u8()
	if v > 1 {
		f.fail(ErrRange)
	}
	return v == 1
}

// zero skips n reserved bytes, which must be zero.
func (f *fields) zero(n uint64) {
	for _, c := range f.take(n) {
		if c != 0 {
			f.fail(ErrReserved)
			return
		}
	}
}

// rest takes everything that is left.
func (f *fields) rest() []byte {
	out := f.b[:len(f.b):len(f.b)]
	f.b = nil
	return out
}

// done returns the first fault; leftover bytes are one.
func (f *fields) done() error {
	if f.err == nil && len(f.b) != 0 {
		f.err = ErrTrailing
	}
	return f.err
}

var le = binary.LittleEndian

// len16 is the length of b for a 16-bit length field of a message that this
// program itself builds; a longer one is a broken invariant.
func len16(b []byte) uint16 {
	if len(b) > 1<<16-1 {
		panic("wire: byte string of more than 65535 bytes")
	}
	return uint16(len(b))
}

// len32 is the same for 32-bit length fields.
func len32(b []byte) uint32 {
	if uint64(len(b)) > 1<<32-1 {
		panic("wire: byte string of more than 4 GiB")
	}
	return uint32(len(b))
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}
