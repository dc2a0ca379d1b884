// Package version says which build of rdmakv this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the release, raised together with CHANGELOG.md.
const Version = "0.1.0-dev"

// Build describes the running program.
type Build struct {
	Program  string `json:"program"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // commit, where the build knew it; "+dirty" with local changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Of returns the build, from what the Go linker wrote into the program.
func Of(program string) Build {
	b := Build{Program: program, Version: Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	dirty := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+dirty"
			}
		}
	}
	if b.Revision != "" {
		b.Revision += dirty
	}
	return b
}

// String is one line.
func (b Build) String() string {
	rev := ""
	if b.Revision != "" {
		rev = " (" + b.Revision[:min(12, len(b.Revision))] + ")"
	}
	return fmt.Sprintf("%s %s%s, %s, %s", b.Program, b.Version, rev, b.Go, b.Platform)
}
