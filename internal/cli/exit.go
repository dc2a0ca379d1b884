package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rdmakv/rdmakv/internal/config"
)

// These are the exit codes of both programs. Each has one of its own besides, 3:
// kvclient's says that a key is not there, kvserver's that it must not be started
// again.
const (
	// ExitOK: all that was asked for has been done.
	ExitOK = 0
	// ExitError: something went wrong that the same command line may do another
	// time.
	ExitError = 1
	// ExitUsage: this command line, or this configuration, never works.
	ExitUsage = 2
	// ExitInterrupted is what a shell gives a program that Ctrl-C has ended: 128
	// and the number of the signal.
	ExitInterrupted = 130
)

// A UsageError is a mistake in the command line: the program ends with ExitUsage. A
// command returns one as long as it has done nothing, so that a script which gets
// ExitUsage knows that nothing has changed.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError, with a format as that of fmt.Errorf. The text is all
// that the user sees, so it names the flag or the argument and says what is
// expected.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// IsUsage reports whether an error calls for ExitUsage: a mistake in the command
// line, or in the configuration, which a script has to tell from a server that is
// away.
func IsUsage(err error) bool {
	var usage *UsageError
	var faults config.Faults
	return errors.As(err, &usage) || errors.As(err, &faults)
}

// Complain writes the text of an error to w, each line with the name of the program
// before it, so that a line in a log that many programs write to tells which
// program wrote it. Lines that begin with two spaces belong to a list and are
// written as they are. If a line cannot be written that is not reported, because
// there is no other place for it.
func Complain(w io.Writer, program, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "  ") {
			fmt.Fprintln(w, line)
			continue
		}
		fmt.Fprintf(w, "%s: %s\n", program, line)
	}
}
