package secret

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"testing"
)

// TestWeak: secrets that people think of, and those of /dev/urandom: 16 to 32 bytes,
// as they are and as text.
func TestWeak(t *testing.T) {
	for _, word := range []string{
		"aaaaaaaaaaaaaaaa", "passwordpassword", "1234123412341234", "correct horse battery staple", "my-very-secret-key",
		"abcabcabcabcabcabc", "Secret12Secret12Secret12", "0000000000000001",
	} {
		if !New([]byte(word)).Weak() {
			t.Errorf("%q passes", word)
		}
	}
	for i := range 2000 {
		b := make([]byte, 16+i%17)
		rand.Read(b)
		for _, form := range []string{string(b), base64.StdEncoding.EncodeToString(b), base64.RawURLEncoding.EncodeToString(b), hex.EncodeToString(b)} {
			if New([]byte(form)).Weak() {
				t.Errorf("%q is random and called weak", form)
			}
		}
	}
}
