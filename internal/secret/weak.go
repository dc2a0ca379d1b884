package secret

import "math"

// Weak reports whether a secret looks like one that a person has thought of: words
// without a digit or a capital, few different characters, or one thing again and
// again. It is a guess to warn by; that it is false says little.
func (t Text) Weak() bool {
	b := t.Reveal()
	words := true
	var count [256]int
	for _, c := range b {
		count[c]++
		words = words && (c >= 'a' && c <= 'z' || c == ' ' || c == '-' || c == '_' || c == '.')
	}
	different, bits := 0, 0.0
	for _, n := range count {
		if n > 0 {
			different++
			bits -= float64(n) * math.Log2(float64(n)/float64(len(b)))
		}
	}
	return words || different < 8 || bits < weakBits || repeats(b)
}

// weakBits is the least content, by the frequency of characters, of a secret of 16
// random hexadecimal digits, the poorest that is called random.
const weakBits = 40

// repeats: the whole is a part of it, repeated.
func repeats(b []byte) bool {
	for n := 1; n <= len(b)/2; n++ {
		if len(b)%n == 0 && string(b[n:]) == string(b[:len(b)-n]) {
			return true
		}
	}
	return false
}
