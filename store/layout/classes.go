package layout

import (
	"fmt"
	"math/bits"
)

// Size classes: every 8 bytes up to 256, then 8 to a doubling. An item wastes
// 4 bytes on average below 256 and at most an eighth above.
//
//	class    1 …  32     8, 16, …, 256
//	class   33 …  40     288, 320, …, 512
//	  ⋮
//	class  169 … 176     36 MiB, 40 MiB, …, 64 MiB
//	class  177           72 MiB: holds the largest item
const (
	fineClasses = 32
	fineStep    = 8
	fineLimit   = fineClasses * fineStep // 256
	perDoubling = 8

	// NumClasses is the number of classes; they are 1 … NumClasses. Classes
	// between NumClasses and ClassPebble are never written.
	NumClasses = 177
)

// The largest item must fit the last class, and a class the byte of a slot.
var _ [72<<20 - MaxItemSize]struct{}
var _ [int(ClassPebble) - 1 - NumClasses]struct{}

// ClassFor is the smallest class whose places hold size bytes (1 … the size
// of the largest class, else ok is false).
func ClassFor(size int) (class uint8, ok bool) {
	switch {
	case size <= 0:
		return 0, false
	case size <= fineLimit:
		return uint8((size + fineStep - 1) / fineStep), true
	case size > ClassSize(NumClasses):
		return 0, false
	}
	// size-1 lies in [2^k, 2^(k+1)) with k ≥ 8; its next three bits are the
	// eighth of the doubling that it falls into.
	k := bits.Len(uint(size-1)) - 1
	eighth := (size-1)>>(k-3) - perDoubling
	return uint8(fineClasses + (k-8)*perDoubling + eighth + 1), true
}

// ClassSize is the size of the places of a class (1 … NumClasses), in bytes.
func ClassSize(class uint8) int {
	if class == 0 || class > NumClasses {
		panic(fmt.Sprintf("layout: no size class %d", class))
	}
	if class <= fineClasses {
		return int(class) * fineStep
	}
	c := int(class) - fineClasses - 1
	k := 8 + c/perDoubling
	return (perDoubling + c%perDoubling + 1) << (k - 3)
}
