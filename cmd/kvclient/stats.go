package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
)

func (a *app) statsCmd() *cobra.Command {
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
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				st, err := statsOf(cmd.Context(), c, node)
				if err != nil && len(st.Nodes) == 0 {
					return err
				}
				// What some nodes have said counts, if others cannot be reached.
				if a.output == "json" {
					return errors.Join(a.printJSON(st), err)
				}
				if all {
					return errors.Join(a.print(flatten(st)), err)
				}
				return errors.Join(a.print(statsText(st)), err)
			})
		},
	}
	a.nodeFlag(cmd, &node)
	cmd.Flags().BoolVar(&all, "all", false, "every counter, one a line")
	return cmd
}

// nodeFlag is for commands that may be about one node of a cluster.
func (a *app) nodeFlag(cmd *cobra.Command, node *string) {
	cmd.Flags().StringVar(node, "node", "", "only this node of the cluster, by its id")
	_ = cmd.RegisterFlagCompletionFunc("node", cobra.NoFileCompletions)
}

func statsOf(ctx context.Context, c *client.Client, node string) (client.Stats, error) {
	if node == "" {
		return c.Stats(ctx)
	}
	n, err := c.Node(node)
	if err != nil {
		return client.Stats{}, err
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
	if err := dec.Decode(&tree); err != nil {
		return err.Error() + "\n"
	}
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
	return table(lines)
}

// table aligns lines with tabs between their cells.
func table(lines []string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		_, _ = w.Write([]byte(l)) // a Builder takes everything
	}
	_ = w.Flush()
	return b.String()
}
