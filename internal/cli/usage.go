// Package cli is what kvclient and kvserver share at the command line: exit codes
// and how errors are printed, messages about wrong command lines, the streams and
// the log, and how numbers are written for people. So both programs behave alike
// for a user who has learned one of them. Package cli/fabrics makes RDMA fabrics of
// the configuration.
//
// A fault of a command line is told in one line that names the argument, the flag
// or the command, says what is expected, and shows the usage line or the nearest
// name.
package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmakv/rdmakv/internal/config"
)

// Words gives every command of a tree our messages about wrong arguments, flags and
// commands. A command that only has commands below it lists them when none is
// given, in lines that begin with two spaces (see Complain). A command that checks
// the number of its arguments by itself keeps its check, and says so by
// cobra.ArbitraryArgs.
func Words(root *cobra.Command) {
	root.SetFlagErrorFunc(flagError)
	root.InitDefaultHelpCmd()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		switch {
		case c.Name() == "help" && c.Parent() == root:
			c.Args, c.PersistentPreRunE, c.PersistentPreRun = helpTopic, nil, func(*cobra.Command, []string) {} // no configuration is needed
		case c.HasSubCommands():
			c.Args = noSuchCommand
			if !c.Runnable() {
				// Cobra checks arguments only of a command that runs.
				c.Args, c.RunE = noSuchOrNone, NoCommand
			}
		case c.Args == nil:
			c.Args = arguments
		}
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(root)
}

// Complete has the shell complete the configuration's flags of a command: names
// where a key takes one of a few, files where it names a file, nothing elsewhere.
func Complete(cmd *cobra.Command) {
	for _, k := range config.Keys() {
		if cmd.Flag(k.Flag) == nil {
			continue
		}
		choices := config.Choices(k.Name)
		switch {
		case k.Kind == config.KindSwitch:
			choices = []string{"true", "false"}
		case choices == nil && k.Kind == config.KindText:
			continue // a file or a directory, mostly
		}
		// An error says that the flag has a completion already.
		_ = cmd.RegisterFlagCompletionFunc(k.Flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
	}
}

// NeedsNoConfig reports whether a command only tells something about the program,
// its version or how a shell completes it. Such a command works where the
// configuration is wrong: completing a flag must not fail for a file that the flag
// would replace.
func NeedsNoConfig(cmd *cobra.Command) bool {
	for c := cmd; c != nil; c = c.Parent() {
		if n := c.Name(); n == "completion" || n == "version" || strings.HasPrefix(n, "__complete") {
			return true
		}
	}
	return false
}

// arguments checks the number of arguments against the usage line of a command:
// NAME must be there, [NAME] may, NAME... and [NAME...] take any further ones.
func arguments(cmd *cobra.Command, args []string) error {
	var must []string
	most := 0
	for _, word := range strings.Fields(cmd.Use)[1:] {
		name, optional := strings.CutPrefix(word, "[")
		if strings.HasSuffix(strings.TrimSuffix(name, "]"), "...") {
			most = len(args)
		}
		if !optional {
			must = append(must, strings.TrimSuffix(name, "..."))
		}
		most++
	}
	switch {
	case len(args) < len(must):
		return fmt.Errorf("%s: %s is missing (usage: %s)", path(cmd), must[len(args)], line(cmd))
	case len(args) > most && most == 0:
		return fmt.Errorf("%s takes no arguments, and %s is one (usage: %s)", path(cmd), quote(args[0]), line(cmd))
	case len(args) > most:
		return fmt.Errorf("%s: %s is one argument too many; one with spaces in it needs quotes (usage: %s)", path(cmd), quote(args[most]), line(cmd))
	}
	return nil
}

// path is the command without the name of the program.
func path(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}

// line is how to call a command.
func line(cmd *cobra.Command) string {
	return strings.TrimSuffix(cmd.UseLine(), " [flags]") + " [flags]"
}

// noSuchCommand is for commands with commands below them: the argument names none
// of those.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil // the command does something itself
	}
	return fmt.Errorf("unknown command %s%s; %s --help lists the commands", quote(args[0]), meant(Suggest(cmd, args[0])), cmd.CommandPath())
}

// noSuchOrNone is noSuchCommand for those that do nothing themselves.
func noSuchOrNone(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return NoCommand(cmd, args)
	}
	return noSuchCommand(cmd, args)
}

// NoCommand says that a command is missing, and lists those that there are, one a
// line.
func NoCommand(cmd *cobra.Command, _ []string) error {
	var b strings.Builder
	what := "a command is missing"
	if cmd.HasParent() {
		what = path(cmd) + ": " + what
	}
	fmt.Fprintf(&b, "%s; %s --help tells more, the commands are", what, cmd.CommandPath())
	wide := 0
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			wide = max(wide, len(c.Use))
		}
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(&b, "\n  %-*s  %s", wide, c.Use, c.Short)
		}
	}
	return errors.New(b.String())
}

// helpTopic refuses an argument that names no command; cobra itself would print the
// whole help, and succeed.
func helpTopic(cmd *cobra.Command, args []string) error {
	at := cmd.Root()
	for _, word := range args {
		next := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
		if next < 0 {
			return noSuchCommand(at, []string{word})
		}
		at = at.Commands()[next]
	}
	return nil
}

// Suggest returns the commands below cmd that a word may have meant. A word that
// other programs use for one of them (its SuggestFor) means that one.
func Suggest(cmd *cobra.Command, word string) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		if slices.Contains(c.SuggestFor, strings.ToLower(word)) {
			return []string{c.Name()}
		}
		names = append(names, c.Name())
	}
	if n := config.Nearest(word, names); n != "" {
		return []string{n}
	}
	return nil
}

func meant(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", names[0])
}

// flagError words what pflag says of a flag.
func flagError(cmd *cobra.Command, err error) error {
	var none *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	var bad *pflag.InvalidValueError
	switch {
	case errors.As(err, &none) && none.GetSpecifiedShortnames() == "":
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		hint := ""
		if now := config.Gone("--" + none.GetSpecifiedName()); now != "" {
			hint = ": " + now
		} else if n := config.Nearest(none.GetSpecifiedName(), names); n != "" {
			hint = fmt.Sprintf("; did you mean --%s?", n)
		}
		return fmt.Errorf("unknown flag %s%s; %s --help lists the flags", quote("--"+none.GetSpecifiedName()), hint, cmd.CommandPath())
	case errors.As(err, &none):
		return fmt.Errorf("unknown flag %s; %s --help lists the flags", quote("-"+none.GetSpecifiedName()), cmd.CommandPath())
	case errors.As(err, &bare):
		return fmt.Errorf("--%s needs a value: %s", bare.GetFlag().Name, bare.GetFlag().Usage)
	case errors.As(err, &bad):
		f := bad.GetFlag()
		if want := wanted[f.Value.Type()]; want != "" {
			return fmt.Errorf("--%s %s: want %s", f.Name, quote(bad.GetValue()), want)
		}
		return fmt.Errorf("--%s %s: %w", f.Name, quote(bad.GetValue()), bad.Unwrap())
	}
	return err
}

// wanted says what value a flag takes, by the word of pflag for its type.
var wanted = map[string]string{
	"int": "a whole number", "int64": "a whole number",
	"uint": "a whole number, not negative", "uint64": "a whole number, not negative", "uint32": "a whole number, not negative",
	"float64": "a number", "duration": "a time with a unit, as 90s, 15m or 1.5h", "bool": "true or false",
}

// quote shows foreign text: quoted and cut, so that a terminal is not disturbed.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
