package base

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestLogNoNilError: a line about what went well, or for a cause that needs no error,
// has no "err=<nil>"; one with an error has it.
func TestLogNoNilError(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	var none error
	log.Warn(LogAlways, "revoked", "tenant", "a", "err", none, "took", 1)
	log.Debug("ended", "cause", "bye", "err", none)
	if text := out.String(); strings.Contains(text, "err=") || !strings.Contains(text, "tenant=a took=1") || !strings.Contains(text, "cause=bye") {
		t.Errorf("%s", text)
	}
	out.Reset()
	log.Warn(LogAlways, "ended", "err", errors.New("gone"))
	if !strings.Contains(out.String(), "err=gone") {
		t.Errorf("%s", &out)
	}
}

func TestLimitedLog(t *testing.T) {
	var out strings.Builder
	l := NewLog(slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Now()
	l.now = func() time.Time { return now }
	for range 100 {
		l.Warn(LogEnded, "ended")
		l.Info("rare")
	}
	if n := strings.Count(out.String(), "msg=ended"); n != logLines {
		t.Errorf("%d lines of a kind, the budget is %d", n, logLines)
	}
	if n := strings.Count(out.String(), "msg=rare"); n != 100 {
		t.Errorf("%d of 100 lines without a budget", n)
	}
	l.Warn(LogRefused, "another kind")
	now = now.Add(logPeriod + 1)
	l.Warn(LogEnded, "ended")
	if !strings.Contains(out.String(), "another kind") || !strings.Contains(out.String(), "similar_lines_dropped=90") {
		t.Error("budgets are not apart, or what was dropped is not told")
	}
}
