package server

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestLogNoNilError: a line about what went well, or for a cause that needs no error,
// has no "err=<nil>"; one with an error has it.
func TestLogNoNilError(t *testing.T) {
	var out bytes.Buffer
	log := newLimitedLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	var none error
	log.Warn(limitNone, "revoked", "tenant", "a", "err", none, "took", 1)
	log.Debug("ended", "cause", "bye", "err", none)
	if text := out.String(); strings.Contains(text, "err=") || !strings.Contains(text, "tenant=a took=1") || !strings.Contains(text, "cause=bye") {
		t.Errorf("%s", text)
	}
	out.Reset()
	log.Warn(limitNone, "ended", "err", errors.New("gone"))
	if !strings.Contains(out.String(), "err=gone") {
		t.Errorf("%s", &out)
	}
}
