package cli

import (
	"errors"
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// A CheckedWriter keeps the first error of the writer W, for callers that do not
// look at errors of writing, as cobra does not when it prints help. Err is nil as
// long as everything has been written.
type CheckedWriter struct {
	W   io.Writer
	Err error
}

func (c *CheckedWriter) Write(b []byte) (int, error) {
	n, err := c.W.Write(b)
	if c.Err == nil {
		c.Err = err
	}
	return n, err
}

// IsTerminal reports whether a stream is a terminal. A stream that is not a file,
// such as a buffer of a test, is none.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Cause takes the path out of an error of package os whose message names the path
// by itself: without this it would stand there twice, once unquoted.
func Cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Level is the level of a word of log_level, which internal/config has checked.
func Level(word string) slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(word))
	return level
}

// Log returns a log that writes to w in one of the forms of log_format: "text" or
// "json". w is standard error, because standard output belongs to what a command
// prints: a script reads the one, a person or a collector of logs the other.
func Log(w io.Writer, form string, opt *slog.HandlerOptions) *slog.Logger {
	if form == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}
