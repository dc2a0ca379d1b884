// Package secret holds the secrets of tenants so that they cannot be printed by
// accident: no format verb, logger or encoder shows one, however deep in a
// structure it lies.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"math"
)

// Shown is what stands wherever a secret would.
const Shown = "(secret)"

// A Text is a secret. The zero Text is the empty one. It is a value: copies share
// the bytes, which are never changed.
type Text struct {
	// It is a pointer to a pointer, because fmt prints the unexported fields of a
	// structure without calling their methods, and where a verb does not fit it
	// follows one pointer, but never two.
	bytes **[]byte
}

// New takes a copy of b.
func New(b []byte) Text {
	if len(b) == 0 {
		return Text{}
	}
	own := append([]byte(nil), b...)
	to := &own
	return Text{&to}
}

// Reveal returns the secret itself, for a MAC and nothing else. The caller does
// not change it.
func (t Text) Reveal() []byte {
	if t.bytes == nil {
		return nil
	}
	return **t.bytes
}

// Empty reports whether there is no secret.
func (t Text) Empty() bool { return len(t.Reveal()) == 0 }

// Equal compares two secrets in a time that depends on neither.
func (t Text) Equal(o Text) bool {
	a, b := sha256.Sum256(t.Reveal()), sha256.Sum256(o.Reveal())
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// String, Format, GoString, MarshalText and LogValue show that there is one.
func (t Text) String() string {
	if t.Empty() {
		return ""
	}
	return Shown
}

// Format implements fmt.Formatter: for every verb.
func (t Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// GoString implements fmt.GoStringer.
func (t Text) GoString() string { return t.String() }

// MarshalText implements encoding.TextMarshaler, which JSON and YAML ask.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue implements slog.LogValuer.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

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
