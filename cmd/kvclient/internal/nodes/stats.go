package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// statsCmd is stats. The counters of this client are printed, too, because
// programs that use the library count the same: here a user sees what they mean.
func statsCmd(a *app.App) *cobra.Command {
	var node string
	var all bool
	cmd := &cobra.Command{
		Use:        "stats",
		SuggestFor: []string{"info", "metrics", "status"},
		Short:      "print the counters of this client and of the server",
		Long: `stats prints the counters of the server and of this client; the latter are
those of this one call, and of interest in programs that use the library. In a
cluster every node that owns keys is asked. The tables show what matters most;
--all lists every counter, one a line, and so does -o json.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				st, err := statsOf(cmd.Context(), c, node)
				if err != nil && len(st.Nodes) == 0 {
					return err
				}
				// Answers of some nodes count, if others cannot be reached.
				if a.Output == "json" {
					return errors.Join(a.PrintJSON(st), err)
				}
				// One counter a line, with its full name, suits grep.
				if all {
					return errors.Join(a.Print(flatten(st)), err)
				}
				return errors.Join(a.Print(statsText(st)), err)
			})
		},
	}
	nodeFlag(cmd, &node)
	cmd.Flags().BoolVar(&all, "all", false, "every counter, one a line")
	return cmd
}

// statsOf asks one node, or all that own keys. In the second case the answers of
// some nodes come with the error of the others.
func statsOf(ctx context.Context, c *client.Client, node string) (admin.Stats, error) {
	if node == "" {
		return admin.Of(c).Stats(ctx)
	}
	n, err := admin.Of(c).Node(node)
	if err != nil {
		return admin.Stats{}, err
	}
	return n.Stats(ctx)
}

// flatten writes anything that has a JSON form as lines "name.name  value",
// sorted by name: easy to read, and to grep.
func flatten(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error() + "\n"
	}
	var tree any
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber() // counters do not fit a float
	// By way of JSON, so that names are those of -o json, whatever the Go type is.
	if err := dec.Decode(&tree); err != nil {
		return err.Error() + "\n"
	}
	// Maps come in any order, so the lines are sorted at the end.
	var lines []string
	var walk func(name string, v any)
	walk = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, inner := range v {
				walk(strings.TrimPrefix(name+"."+k, "."), inner)
			}
		case []any:
			for i, inner := range v {
				walk(name+"."+strconv.Itoa(i), inner)
			}
		default:
			lines = append(lines, fmt.Sprintf("%s\t%v\n", name, v))
		}
	}
	walk("", tree)
	slices.Sort(lines)
	return cli.Table(lines)
}
