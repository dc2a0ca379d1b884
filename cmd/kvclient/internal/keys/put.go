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

// putCmd is put. Every fault of the command line is found before the server is dialed,
// and the value is read before that, too, so that an input which cannot be read is an
// error whether a server is there or not.
//
// Files of some size are the exception: they are read into registered memory, which
// there is only once a client is connected (buffered.go).
func putCmd(a *app.App) *cobra.Command {
	var file, ttl string
	var opts client.PutOptions
	cmd := &cobra.Command{
		Use:        "put KEY [VALUE]",
		SuggestFor: []string{"set", "write", "mset", "setex", "store"},
		Short:      "store a value under a key",
		Long: `put stores VALUE under KEY and returns when the server has acknowledged it.
Without VALUE the value is read from --file, else from standard input; both are
taken byte for byte, also with --hex. A value has at most 1 GiB; of one above 64 MiB
the first 64 MiB are read before the server is connected, the rest while it is stored. An empty value is put KEY ''; a standard input
that is closed, or /dev/null as a program without input is given it, is refused.

With --if-absent or --if-version it stores the value only if that holds, and
else ends with exit code 1. With --ttl the key expires so long after the server
has stored it. With -o json it prints the version that the key then has.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.Key(args[0])
			if err != nil {
				return err
			}
			if opts.TTL, err = parseTTL(ttl); err != nil {
				return cli.Usagef("--ttl %s: %v", cli.Quote([]byte(ttl)), err)
			}
			// An absent key has no version, so the two conditions contradict each other.
			if opts.IfAbsent && opts.IfVersion != 0 {
				return cli.Usagef("--if-absent and --if-version exclude each other")
			}
			// 0 is the zero value of PutOptions and means no condition there: passed on,
			// it would overwrite what the user asked to protect.
			if cmd.Flags().Changed("if-version") && opts.IfVersion == 0 {
				return cli.Usagef("--if-version is 0, which no key has; --if-absent asks for a key that does not exist")
			}
			// Where the value comes from: VALUE, --file, standard input. Two of
			// them at a time are refused, because either could be meant.
			var value []byte
			var large *os.File
			var size int
			var stream io.Reader // of a value that is too large to be read before
			if file != "" && file != "-" {
				if large, size, err = openLarge(file); err != nil {
					return err
				}
				if large != nil {
					defer large.Close()
				}
			}
			switch {
			case len(args) == 2 && file != "":
				return cli.Usagef("both VALUE and --file are given")
			case large != nil: // it is read once there is memory for it
			case len(args) == 2:
				value, err = a.Bytes("VALUE", args[1])
			case file != "":
				var end func()
				if value, stream, end, err = a.Source(file); err == nil {
					defer end()
				}
			// An empty value given by mistake would overwrite the old value.
			case cli.NeverOpen(a.Stdin):
				return cli.Usagef("put: standard input is closed or /dev/null, and VALUE is missing; an empty value is: put KEY ''")
			default:
				// Without this a user who has forgotten VALUE sees a program that
				// hangs.
				if cli.IsTerminal(a.Stdin) {
					fmt.Fprintln(a.Stderr, "kvclient: reading the value from the terminal, end it with Ctrl-D")
				}
				value, stream, _, err = a.Source("-")
			}
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				// The version is known from the reply, so -o json costs nothing
				// more.
				put := func() (uint64, error) { return c.PutWith(cmd.Context(), key, value, opts) }
				if stream != nil {
					put = func() (uint64, error) { return c.PutReader(cmd.Context(), key, stream, -1, opts) }
				}
				if large != nil {
					put = func() (uint64, error) { return putFile(cmd.Context(), c, key, large, size, opts) }
				}
				version, err := put()
				if err != nil || a.Output != "json" {
					return err
				}
				return a.Print(string(appendRecord(nil, record{Key: key, Version: &version})))
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "read the value from this file, - for standard input")
	cmd.Flags().BoolVar(&opts.IfAbsent, "if-absent", false, "only if the key does not exist")
	cmd.Flags().Uint64Var(&opts.IfVersion, "if-version", 0, "only if the key has this version")
	cmd.Flags().StringVar(&ttl, "ttl", "never", "how long the key lives: 90s, 1.5h, …, never")
	return cmd
}
