package backups

import (
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/internal/cli"
)

// Errors of S3 servers and of files that are not ours have any text, of several lines or with bytes that a terminal obeys.

// A lineError has the text of its cause in one line.
type lineError struct{ error }

// mostLine bounds a line, in bytes.
const mostLine = 1000

func (e lineError) Error() string {
	text := strings.Join(strings.Fields(e.error.Error()), " ")
	if len(text) > mostLine {
		text = text[:mostLine] + " ..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

func (e lineError) Unwrap() error { return e.error }

// oneLine makes one line of the text of an error that is somebody else's.
func oneLine(err error) error {
	if err == nil || cli.IsUsage(err) {
		return err
	}
	return lineError{err}
}

// inOneLine has a command fail with one line.
func inOneLine(run func(cmd *cobra.Command, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error { return oneLine(run(cmd, args)) }
}
