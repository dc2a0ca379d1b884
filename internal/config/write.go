package config

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
)

// WriteTo writes the configuration in force as YAML, each line with where its
// value came from. What it writes can be read again as a file.
func (l *Loaded) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	for _, scope := range []Scope{ForServer | ForClient, ForServer, ForClient} {
		fmt.Fprintf(&b, "# %s\n", scope)
		for _, k := range Keys() {
			if k.Scope == scope {
				fmt.Fprintf(&b, "%-40s # %s\n", k.Name+": "+k.value(&l.Config), l.Sources[k.Name])
			}
		}
	}
	return b.WriteTo(w)
}

// Attrs are the settings of a program for its log. There is no secret among
// them: those stand in files, of which only the names are settings.
func (l *Loaded) Attrs(scope Scope) []slog.Attr {
	var attrs []slog.Attr
	for _, k := range Keys() {
		if k.Scope&scope != 0 {
			attrs = append(attrs, slog.String(k.Name, fmt.Sprint(k.raw(&l.Config))))
		}
	}
	return attrs
}
