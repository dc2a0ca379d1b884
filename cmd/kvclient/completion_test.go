package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/config"
)

// TestCompletion: the shell is offered the names that a flag takes, and files only
// where a flag takes a file.
func TestCompletion(t *testing.T) {
	offered := func(args ...string) (names []string, files bool) {
		t.Helper()
		var out bytes.Buffer
		a := &app.App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: new(bytes.Buffer), Env: []string{"HOME=/nonexistent"}}
		if code := a.Run(t.Context(), append([]string{"__complete"}, args...), commands); code != cli.ExitOK {
			t.Fatalf("%q: exit code %d", args, code)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		last := lines[len(lines)-1] // :4 is "no files"
		return lines[:len(lines)-1], last != ":4"
	}
	for _, k := range config.Keys() {
		if k.Kind == config.KindSwitch {
			continue // what stands behind it is not its value
		}
		command := "get"
		if k.Scope == config.ForServer {
			command = "doctor" // has the flags of kvserver, too
		}
		names, files := offered(command, "--"+k.Flag, "")
		if want := config.Choices(k.Name); want != nil && strings.Join(names, " ") != strings.Join(want, " ") {
			t.Errorf("--%s: %q are offered, want %q", k.Flag, names, want)
		}
		if wantFiles := k.Kind == config.KindText && config.Choices(k.Name) == nil; files != wantFiles {
			t.Errorf("--%s: files are offered: %v", k.Flag, files)
		}
	}
	if names, _ := offered("doctor", "--role", ""); strings.Join(names, " ") != "auto node client" {
		t.Errorf("--role: %q", names)
	}
}
