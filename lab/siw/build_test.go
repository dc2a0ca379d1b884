package siw

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// every variant that there can be.
func variants() []Variant {
	var vs []Variant
	for _, r := range []bool{false, true} {
		for _, c := range []bool{false, true} {
			for _, p := range []bool{false, true} {
				vs = append(vs, Variant{Revision1: r, RequireCRC: c, PeerToPeer: p})
			}
		}
	}
	return vs
}

// TestVariantsDiffer: two variants never share a name or a file.
func TestVariantsDiffer(t *testing.T) {
	names, keys := map[string]bool{}, map[string]bool{}
	for _, v := range variants() {
		if names[v.String()] || keys[v.key()] {
			t.Errorf("%+v is named %q with key %s, as another is", v, v, v.key())
		}
		names[v.String()], keys[v.key()] = true, true
	}
}

// definitions are how the driver has its constants.
const definitions = `
const bool mpa_crc_required;
const bool mpa_crc_strict;
u_char mpa_version = MPA_REVISION_2;
const bool peer_to_peer;
`

func TestApply(t *testing.T) {
	file := filepath.Join(t.TempDir(), driverMain)
	for _, v := range variants() {
		if err := os.WriteFile(file, []byte(definitions), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := v.apply(file); err != nil {
			t.Fatalf("%v: %v", v, err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			on   bool
			text string
		}{
			{v.RequireCRC, "const bool mpa_crc_required = true;"},
			{v.Revision1, "u_char mpa_version = MPA_REVISION_1;"},
			{v.PeerToPeer, "const bool peer_to_peer = true;"},
		} {
			if strings.Contains(string(got), c.text) != c.on {
				t.Errorf("%v: %q stands there: %v, want %v", v, c.text, !c.on, c.on)
			}
		}
		if !strings.Contains(string(got), "const bool mpa_crc_strict;") {
			t.Errorf("%v has changed a constant of no concern", v)
		}
	}
}

// TestApplyToOtherDriver: a driver in which a constant is not found, or found
// twice, is not built as something that it is not.
func TestApplyToOtherDriver(t *testing.T) {
	file := filepath.Join(t.TempDir(), driverMain)
	for _, text := range []string{strings.ReplaceAll(definitions, "const bool peer_to_peer;", ""), definitions + definitions} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := (Variant{PeerToPeer: true}).apply(file); !errors.Is(err, ErrBuild) {
			t.Errorf("applied to %q: %v, want %v", text, err, ErrBuild)
		}
	}
}

// TestLock: builds take turns, and one that waits obeys its context.
func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, file); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second lock: %v, want %v", err, context.DeadlineExceeded)
	}
	unlock()
	unlock, err = lock(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

// TestRunArguments: mistakes of the command line are found before anything is
// downloaded.
func TestRunArguments(t *testing.T) {
	for _, args := range [][]string{{"now"}, {"-no-such-flag"}, {"-timeout", "soon"}} {
		if code, err := Run(t.Context(), args); code != 2 || err == nil {
			t.Errorf("Run(%q) = %d, %v; want 2 and what is wrong", args, code, err)
		}
	}
}
