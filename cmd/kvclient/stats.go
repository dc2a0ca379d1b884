package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
)

func (a *app) statsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "print the counters of this client and of the server",
		Long: `stats prints the counters of the server and of this client; the latter are
those of this one call, and of interest in programs that use the library.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				st, err := c.Stats(cmd.Context())
				if err != nil {
					return err
				}
				if a.output == "json" {
					return a.printJSON(st)
				}
				return a.print(flatten(st))
			})
		},
	}
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
