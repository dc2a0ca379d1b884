package load

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

// Values carry the number of their key and one of their own, and then bytes that
// follow from both, so that a reader can check any value without knowing which
// caller wrote it or when:
//
//	bytes 0-7    number of the key, little endian, or as many as fit
//	      8-15   number of the value
//	      16-    random bytes, from a place in a pool that follows from both
//
// The size follows from both numbers, too. The bytes do not compress.
type values struct {
	sizes    Sizes
	min, max int
	pool     []byte
}

const (
	valueHead = 16
	// poolSpread is from how many places of the pool values can begin.
	poolSpread = 4096
	// checkedWhole is up to which size all bytes of a value are compared. In a
	// larger one the head and checkedPart bytes at two places are compared, and
	// one of the places is the end: comparing it whole would take longer than
	// READing it here.
	checkedWhole = 4096
	checkedPart  = 256
)

// newValues makes the pool, which is always the same: a run can check what another
// one, with another seed, has stored.
func newValues(sizes Sizes) *values {
	v := &values{sizes: sizes, min: sizes.Min(), max: sizes.Max()}
	rnd := newRNG(0, 1<<40)
	for len(v.pool) < v.max+poolSpread {
		v.pool = binary.LittleEndian.AppendUint64(v.pool, rnd.next())
	}
	return v
}

// bits are what the size and the body of a value follow from.
func (v *values) bits(key, number uint64) uint64 { return mix64(key*0x9e3779b97f4a7c15 ^ number) }

// make writes value number of a key into dst.
func (v *values) make(dst []byte, key, number uint64) []byte {
	bits := v.bits(key, number)
	n := v.sizes.at(bits)
	var head [valueHead]byte
	binary.LittleEndian.PutUint64(head[:], key)
	binary.LittleEndian.PutUint64(head[8:], number)
	dst = append(dst[:0], head[:min(n, valueHead)]...)
	if n > valueHead {
		at := int(bits % poolSpread)
		dst = append(dst, v.pool[at:at+n-valueHead]...)
	}
	return dst
}

// check says whether got can be a value of key.
func (v *values) check(got []byte, key uint64) error {
	if n := len(got); n < v.min || n > v.max {
		return wrong(key, "it has "+strconv.Itoa(n)+" bytes, none has fewer than "+strconv.Itoa(v.min)+" or more than "+strconv.Itoa(v.max))
	}
	if len(got) < valueHead {
		var head [8]byte
		binary.LittleEndian.PutUint64(head[:], key)
		if n := min(len(got), 8); !bytes.Equal(got[:n], head[:n]) {
			return wrong(key, "it is the value of another key")
		}
		return nil
	}
	if is := binary.LittleEndian.Uint64(got); is != key {
		return wrong(key, "it is the value of key "+strconv.FormatUint(is, 10))
	}
	bits := v.bits(key, binary.LittleEndian.Uint64(got[8:]))
	if n := v.sizes.at(bits); len(got) != n {
		return wrong(key, "it has "+strconv.Itoa(len(got))+" bytes, want "+strconv.Itoa(n))
	}
	at := int(bits % poolSpread)
	body := got[valueHead:]
	want := v.pool[at : at+len(body)]
	if len(body) > checkedWhole {
		part := int(bits >> 32 % uint64(len(body)-checkedPart))
		if !bytes.Equal(body[part:part+checkedPart], want[part:part+checkedPart]) {
			return wrong(key, "bytes from "+strconv.Itoa(valueHead+part)+" on differ from what was put")
		}
		last := len(body) - checkedPart
		body, want = body[last:], want[last:]
	}
	if !bytes.Equal(body, want) {
		return wrong(key, "its bytes differ from what was put")
	}
	return nil
}

func wrong(key uint64, what string) error {
	return fmt.Errorf("%w: of key %d: %s", ErrWrongValue, key, what)
}
