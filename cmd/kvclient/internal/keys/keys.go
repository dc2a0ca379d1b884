// Package keys has the commands of kvclient that read and write keys: get, put,
// delete, exists, ttl, incr, touch, scan, count, batch, watch, import and export.
//
// A value goes through byte for byte; what is printed as text is made harmless for
// a terminal (App.Show), and what is printed as JSON Lines can be read back by
// import (record). A command that concerns several keys does not stop at the first
// that fails: it tells of each, by reason, and its exit code is that of the worst.
package keys

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// Commands are the commands of this package, for the root command.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{getCmd(a), putCmd(a), deleteCmd(a), existsCmd(a), scanCmd(a), countCmd(a), ttlCmd(a),
		incrCmd(a), touchCmd(a), batchCmd(a), watchCmd(a), importCmd(a), exportCmd(a)}
}

// prefixOf reads a prefix that may be given as an argument or as --prefix: the
// argument is shorter to type, the flag is what the other commands have.
func prefixOf(a *app.App, args []string, flag string) ([]byte, error) {
	if len(args) == 0 {
		return a.Bytes("--prefix", flag)
	}
	if flag != "" {
		return nil, cli.Usagef("both PREFIX and --prefix are given")
	}
	return a.Bytes("PREFIX", args[0])
}

// openInput opens the FILE argument, or standard input. The caller closes in. name
// is how messages call it; size is for the bar of the progress, and 0 where it is
// not known before the end, as of a pipe.
func openInput(a *app.App, args []string) (in io.ReadCloser, name string, size int64, err error) {
	if len(args) == 0 || args[0] == "-" {
		return io.NopCloser(a.Stdin), "standard input", 0, nil
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, "", 0, fmt.Errorf("open %s: %w", cli.Quote([]byte(args[0])), cli.Cause(err))
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		f.Close()
		return nil, "", 0, err
	case st.IsDir():
		f.Close()
		return nil, "", 0, fmt.Errorf("open %s: is a directory", cli.Quote([]byte(args[0])))
	case st.Mode().IsRegular():
		size = st.Size()
	}
	return f, cli.Quote([]byte(args[0])), size, nil
}

// absent is the error of a key that is not there; nil if it is.
func absent(key []byte, there bool) error {
	if there {
		return nil
	}
	return fmt.Errorf("%s: %w", cli.Quote(key), client.ErrNotFound)
}

// missingAnd prints which keys were not there and returns the failure of the
// others, which is the worse of the two and so decides the exit code.
func missingAnd(a *app.App, missing []error, failed error) error {
	for _, m := range missing {
		a.Complain(m)
	}
	return failed
}
