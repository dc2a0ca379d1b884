package inspect

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// noteSpaces says which stores of tenants lie below a node's data directory:
// each is a store of its own, that no command for the node's own keys touches.
// Nobody should learn that from a restore.
func noteSpaces(out io.Writer, dir string) {
	for _, space := range spacesIn(dir) {
		fmt.Fprintf(out, "not among them: the keys of tenant space %s; they are a store of their own: %s\n", filepath.Base(space), space)
	}
}

// spacesIn are the directories of those stores.
func spacesIn(dir string) (spaces []string) {
	entries, err := os.ReadDir(filepath.Join(dir, "tenants"))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		space := filepath.Join(dir, "tenants", e.Name())
		if _, err := os.Stat(filepath.Join(space, "STORE")); err == nil {
			spaces = append(spaces, space)
		}
	}
	return spaces
}

// below is where a space lies below another node's directory.
func below(dir, space string) string { return filepath.Join(dir, "tenants", filepath.Base(space)) }
