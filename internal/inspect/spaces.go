package inspect

import (
	"fmt"
	"io"
	"path/filepath"
)

// noteSpaces says which stores of tenants lie below a node's data directory:
// each is a store of its own, that no command for the node's own keys touches.
// Nobody should learn that from a restore.
func noteSpaces(out io.Writer, dir string) {
	found, err := filepath.Glob(filepath.Join(dir, "tenants", "*", "STORE"))
	if err != nil {
		return
	}
	for _, name := range found {
		space := filepath.Dir(name)
		fmt.Fprintf(out, "not among them: the keys of tenant space %s; they are a store of their own: %s\n", filepath.Base(space), space)
	}
}
