package main

import (
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
)

// TestFlagsAreTheirOwn: no command has a flag with the name of a key of the
// configuration, which would be taken for that key's value.
func TestFlagsAreTheirOwn(t *testing.T) {
	a := &app.App{Stdout: io.Discard, Stderr: io.Discard}
	root := a.Root(commands)
	shared := root.PersistentFlags()
	looked := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			looked++
			if other := shared.Lookup(f.Name); other != nil && other != f {
				t.Errorf("%s: --%s hides the key of the configuration", c.CommandPath(), f.Name)
			}
		})
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(root)
	if looked < 20 {
		t.Errorf("%d flags", looked)
	}
}
