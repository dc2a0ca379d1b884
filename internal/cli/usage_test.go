package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// tree is a small program.
func tree() *cobra.Command {
	run := func(*cobra.Command, []string) error { return nil }
	root := &cobra.Command{Use: "prog", RunE: run, SilenceErrors: true, SilenceUsage: true}
	one := &cobra.Command{Use: "one A [B]", RunE: run}
	one.Flags().Int("number", 0, "how many")
	one.Flags().Bool("switch", false, "whether")
	group := &cobra.Command{Use: "group", RunE: run}
	group.AddCommand(&cobra.Command{Use: "many A...", RunE: run}, &cobra.Command{Use: "none", RunE: run, SuggestFor: []string{"nothing"}})
	set := &cobra.Command{Use: "set"}
	set.AddCommand(&cobra.Command{Use: "a X", Short: "do a", RunE: run}, &cobra.Command{Use: "longer", Short: "do more", RunE: run}, &cobra.Command{Use: "not", Hidden: true, RunE: run})
	root.AddCommand(one, group, set, &cobra.Command{Use: "any [A...]", RunE: run}, &cobra.Command{Use: "own", Args: cobra.ArbitraryArgs, RunE: run})
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	Words(root)
	return root
}

func TestWords(t *testing.T) {
	for line, want := range map[string]string{
		"one a": "", "one a b": "", "any": "", "any a b c": "", "group many a b c": "", "group none": "", "own a b": "",
		"one":                                 "one: A is missing (usage: prog one A [B] [flags])",
		"one a b c":                           `one: "c" is one argument too many; one with spaces in it needs quotes (usage: prog one A [B] [flags])`,
		"group many":                          "group many: A is missing (usage: prog group many A... [flags])",
		"group none a":                        `group none takes no arguments, and "a" is one (usage: prog group none [flags])`,
		"noe":                                 `unknown command "noe"; did you mean "one"?; prog --help lists the commands`,
		"group nothing":                       `unknown command "nothing"; did you mean "none"?; prog group --help lists the commands`,
		"set":                                 "set: a command is missing; prog set --help tells more, the commands are\n  a X     do a\n  longer  do more",
		"set lnoger":                          `unknown command "lnoger"; did you mean "longer"?; prog set --help lists the commands`,
		"something":                           `unknown command "something"; prog --help lists the commands`,
		"one a --nubmer 3":                    `unknown flag "--nubmer"; did you mean --number?; prog one --help lists the flags`,
		"one a -x":                            `unknown flag "-x"; prog one --help lists the flags`,
		"one a --number":                      "--number needs a value: how many",
		"one a --number x":                    `--number "x": want a whole number`,
		"one a --switch=perhaps":              `--switch "perhaps": want true or false`,
		"one a --number 99999999999999999999": `--number "99999999999999999999": want a whole number`,
	} {
		root := tree()
		root.SetArgs(strings.Fields(line))
		got := ""
		if err := root.Execute(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", line, got, want)
		}
	}
}
