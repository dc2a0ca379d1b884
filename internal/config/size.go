package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. In writing it always has a unit.
type Size uint64

// sizeGrammar is what every refusal of a size shows.
const sizeGrammar = "a whole number with a unit: B, KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000), as in 64MiB"

// sizeUnits in the order in which String tries them: the largest binary unit
// that divides the size, and bytes at last.
var sizeUnits = []struct {
	name  string
	bytes uint64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3},
	{"B", 1},
}

// String writes the size so that ParseSize reads the same number back:
// "64MiB", "1000B".
func (s Size) String() string {
	for _, u := range sizeUnits[:4] {
		if s != 0 && uint64(s)%u.bytes == 0 {
			return strconv.FormatUint(uint64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(s), 10) + "B"
}

// ParseSize reads "64MiB", "64 MiB", "64MB" or "64B". It refuses a number
// without a unit, because half of the readers would misunderstand it; only 0
// needs none.
func ParseSize(text string) (Size, error) {
	if text == "0" {
		return 0, nil
	}
	digits := text
	unit := uint64(0)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.name); ok {
			digits, unit = strings.TrimSuffix(rest, " "), u.bytes
			break
		}
	}
	if unit == 0 {
		return 0, fmt.Errorf("%s is not a size: want %s", quote(text), sizeGrammar)
	}
	n, err := parseDigits(digits)
	if err != nil {
		return 0, fmt.Errorf("%s is not a size: want %s", quote(text), sizeGrammar)
	}
	if n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%s is too large: at most %d bytes", quote(text), int64(math.MaxInt64))
	}
	return Size(n * unit), nil
}

// parseDigits reads plain decimal digits: no sign, no underscore, no space, no
// 0x, which strconv would accept in one form or another.
func parseDigits(s string) (uint64, error) {
	if s == "" {
		return 0, strconv.ErrSyntax
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	return strconv.ParseUint(s, 10, 63)
}
