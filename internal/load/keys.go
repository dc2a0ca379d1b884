package load

import (
	"fmt"
	"math"
)

// Keys is how number i is written as a key: the prefix and then digits, so that
// all keys have one length.
type Keys struct {
	Prefix string
	// Size is the length of a key in bytes, from len(Prefix)+10 on, which is also
	// the default. Hashed keys have 16 hexadecimal digits at least.
	Size int
	// Hashed writes a hash of the number, so that neighbours in the order of keys
	// have nothing to do with each other, as YCSB's insertorder=hashed.
	Hashed bool
}

// Digits of keys.
const (
	numberDigits = 10 // enough for MaxRecords and what is inserted
	hashDigits   = 16
	maxKey       = 4096
)

func (k Keys) digits() int {
	if k.Hashed {
		return hashDigits
	}
	return numberDigits
}

func (k Keys) withDefaults() Keys {
	def(&k.Size, len(k.Prefix)+k.digits())
	return k
}

func (k Keys) validate() error {
	if least := len(k.Prefix) + k.digits(); k.Size < least || k.Size > maxKey {
		return fmt.Errorf("%w: keys of %d bytes, want %d (the prefix and %d digits) to %d", ErrOptions, k.Size, least, k.digits(), maxKey)
	}
	return nil
}

// maxKeyNumber is the largest number that a key can have.
const maxKeyNumber = 9_999_999_999

// Append writes key number i.
func (k Keys) Append(dst []byte, i uint64) []byte {
	k = k.withDefaults()
	return k.template().append(dst, i)
}

// A keyTemplate is a key with zeros for digits.
type keyTemplate struct {
	text   []byte
	hashed bool
}

func (k Keys) template() keyTemplate {
	text := append(make([]byte, 0, k.Size), k.Prefix...)
	for len(text) < k.Size {
		text = append(text, '0')
	}
	return keyTemplate{text, k.Hashed}
}

func (t keyTemplate) append(dst []byte, i uint64) []byte {
	dst = append(dst, t.text...)
	if t.hashed {
		const digits = "0123456789abcdef"
		h := mix64(i)
		for at := len(dst) - 1; h != 0; at, h = at-1, h>>4 {
			dst[at] = digits[h&15]
		}
		return dst
	}
	at := len(dst) - 1
	for i > math.MaxUint32 { // divisions of 32 bits are faster
		dst[at] = byte('0' + i%10)
		at, i = at-1, i/10
	}
	for n := uint32(i); n != 0; at, n = at-1, n/10 {
		dst[at] = byte('0' + n%10)
	}
	return dst
}
