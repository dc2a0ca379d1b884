package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

type holder struct {
	Name   string
	Secret Text
	inner  struct{ secret Text }
	list   []Text
}

// TestNobodySeesIt writes a secret in every way there is, also from inside a
// structure that does not export it.
func TestNobodySeesIt(t *testing.T) {
	const plain = "a-very-secret-word"
	hex := fmt.Sprintf("%x", plain)
	s := New([]byte(plain))
	h := holder{Name: "n", Secret: s, list: []Text{s}}
	h.inner.secret = s
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", s, h, &h)
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("text", "secret", s, "holder", h, "pointer", &h)
	}
	if err := json.NewEncoder(&out).Encode(h); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(&out, fmt.Errorf("failed with %v", s))
	numbers := strings.Trim(fmt.Sprint([]byte(plain)), "[]")
	for _, form := range []string{plain, hex, strings.ToUpper(hex), numbers} {
		if strings.Contains(out.String(), form) {
			t.Errorf("it shows: %s", out.String())
		}
	}
	if !strings.Contains(out.String(), Shown) {
		t.Error("nothing says that there is one")
	}
	if string(s.Reveal()) != plain || s.Empty() || !New(nil).Empty() || (Text{}).String() != "" {
		t.Error("Reveal, Empty")
	}
	if !s.Equal(New([]byte(plain))) || s.Equal(New([]byte("another"))) || s.Equal(Text{}) {
		t.Error("Equal")
	}
}

func TestItIsACopy(t *testing.T) {
	b := []byte("0123456789abcdef")
	s := New(b)
	b[0] = 'x'
	if s.Reveal()[0] != '0' {
		t.Error("the caller's memory")
	}
}
