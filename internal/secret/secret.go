// Package secret holds what nobody may see: the secrets of tenants. No format
// verb, logger or encoder shows one, however deep in a structure it lies.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// Shown is what stands wherever a secret would.
const Shown = "(secret)"

// A Text is a secret. The zero Text is the empty one. It is a value: copies share
// the bytes, which are never changed.
type Text struct {
	// A pointer to a pointer: fmt writes the fields of a structure that it may
	// not ask how to (those not exported), and where a verb does not fit it
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
