package config

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// WriteTo writes the configuration in force as YAML, each line with where its
// value came from. What it writes can be read again as a file. A secret is not
// among it: files are named, and of variables the last lines say that they are
// set.
func (l *Loaded) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	for _, scope := range []Scope{ForServer | ForClient, ForServer, ForClient} {
		fmt.Fprintf(&b, "# %s\n", scope)
		section := ""
		for _, k := range Keys() {
			if k.Scope != scope {
				continue
			}
			name := k.Name
			if s := k.Section(); s != "" {
				if s != section {
					fmt.Fprintf(&b, "%s:\n", s)
				}
				section, name = s, "  "+strings.TrimPrefix(name, s+".")
			}
			fmt.Fprintf(&b, "%-40s # %s\n", name+": "+k.value(&l.Config), l.Sources[k.Name])
		}
	}
	for _, one := range []struct {
		name string
		text hidden
	}{{EnvSecret, l.secret}, {EnvGossipKey, l.gossipKey}} {
		if one.text.text != nil {
			fmt.Fprintf(&b, "# %s is set; it is not shown\n", one.name)
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
