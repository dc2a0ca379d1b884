package keys

import (
	"bufio"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// batchCmd is batch. Its input is read to the end before anything is sent, because
// a batch is one request: all of it takes effect or nothing.
func batchCmd(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "batch [FILE]",
		Short: "write several keys, all or nothing",
		Long: `batch writes the lines of FILE or, with no FILE or "-", of standard input, all
together or not at all, for readers too. A line is a JSON object:

  {"key":"{alice}:name","value":"Alice"}
  {"key":"{alice}:seen","value":"now","ttl":"15m"}
  {"key":"{alice}:new","value":"","if_absent":true}
  {"key":"{alice}:mail","value":"a@b","if_version":17}
  {"key":"{alice}:draft","delete":true}

Bytes that are no text stand in base64 as key_b64 and value_b64. The keys must
be of one shard, which keys with the same {tag} always are; no key may be there
twice. If one condition does not hold nothing is written, and the exit code is
1. It prints the version of the last write.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			// The size does not matter: a batch is small, and there is no bar for
			// it.
			in, name, _, err := openInput(a, args)
			if err != nil {
				return err
			}
			defer in.Close()
			b, err := readBatch(in, name)
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				version, err := c.WriteBatch(cmd.Context(), b)
				switch {
				case err != nil:
					return err
				case a.Output == "json":
					return a.PrintJSON(struct {
						Writes  int    `json:"writes"`
						Version uint64 `json:"version"`
					}{b.Len(), version})
				}
				return a.Print(fmt.Sprintln(version))
			})
		},
	}
}

// readBatch reads a batch, line by line. It stops where the bounds of a batch are
// passed, however much there is to read: a stream without an end must not fill the
// memory. name is what its errors call the stream.
func readBatch(in io.Reader, name string) (*client.Batch, error) {
	// bytes counts keys and values, as the bound of a batch does.
	var b client.Batch
	lines, bytes := bufio.NewReaderSize(in, 64<<10), 0
	for n := 1; ; n++ {
		text, err := readLine(lines)
		if err == io.EOF {
			return &b, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, n, cli.Cause(err))
		}
		if len(text) == 0 {
			continue // an empty line, such as an editor leaves at the end
		}
		r, err := parseLine(text, true)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d %w", name, n, err)
		}
		if bytes += len(r.Key) + len(r.Value); bytes > client.MaxBatchBytes || b.Len() == client.MaxBatchKeys {
			return nil, fmt.Errorf("%s, line %d: %w: at most %d keys and %d bytes", name, n, client.ErrBatch, client.MaxBatchKeys, client.MaxBatchBytes)
		}
		// parseLine has refused a record that would be two of these.
		switch {
		case !r.Delete:
			b.PutWith(r.Key, r.Value, r.PutOptions)
		case r.IfVersion != 0:
			b.DeleteIf(r.Key, r.IfVersion)
		default:
			b.Delete(r.Key)
		}
	}
}
