// Package deb gets files out of Debian packages without installing them: the
// package manager downloads, dpkg unpacks into a cache, and a second request
// for the same version costs nothing.
package deb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A Package is one that has been unpacked.
type Package struct {
	Name    string
	Version string
	Dir     string // holds usr/, lib/, boot/ and so on
}

// ErrNoDebian says that this machine has no apt-get, dpkg, lists of packages, or
// way to a mirror, so no package is available.
var ErrNoDebian = errors.New("no packages can be had here")

// name is what Debian policy 5.6.7 allows; it also keeps options out of
// command lines.
var name = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)

// Depends returns the first package beginning with prefix on which a package
// depends: how a name without a version, as linux-image-amd64, is followed.
func Depends(ctx context.Context, pkg, prefix string) (string, error) {
	// apt-cache fails when it knows no such package, as without any list.
	out, err := run(ctx, "", "apt-cache", "depends", "--important", pkg)
	if err != nil {
		return "", none(ctx, err)
	}
	for line := range strings.Lines(out) {
		if dep, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok && strings.HasPrefix(dep, prefix) {
			return dep, nil
		}
	}
	return "", fmt.Errorf("%w: %s depends on no %s* (try apt-get update)", ErrNoDebian, pkg, prefix)
}

// Candidate returns the version that would be downloaded.
func Candidate(ctx context.Context, pkg string) (string, error) {
	if !name.MatchString(pkg) {
		return "", fmt.Errorf("%q is no name of a package", pkg)
	}
	out, err := run(ctx, "", "apt-cache", "policy", pkg)
	if err != nil {
		return "", none(ctx, err)
	}
	for line := range strings.Lines(out) {
		v, ok := strings.CutPrefix(strings.TrimSpace(line), "Candidate: ")
		if ok && v != "(none)" {
			return v, nil
		}
	}
	return "", fmt.Errorf("%w: there is no package %s (try apt-get update)", ErrNoDebian, pkg)
}

// Unpack downloads and unpacks a package below the directory cache unless it
// is there already. The directory appears whole or not at all.
func Unpack(ctx context.Context, cache, pkg string) (Package, error) {
	version, err := Candidate(ctx, pkg)
	if err != nil {
		return Package{}, err
	}
	p := Package{Name: pkg, Version: version, Dir: filepath.Join(cache, pkg+"_"+strings.ReplaceAll(version, ":", "%3a"))}
	if _, err := os.Stat(p.Dir); err == nil {
		return p, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Package{}, err
	}
	tmp, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return Package{}, err
	}
	defer os.RemoveAll(tmp)
	if _, err := run(ctx, tmp, "apt-get", "download", "-q", pkg+"="+version); err != nil {
		return Package{}, none(ctx, fmt.Errorf("download %s: %w", pkg, err))
	}
	files, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(files) != 1 {
		return Package{}, fmt.Errorf("download %s: %d files", pkg, len(files))
	}
	dir := filepath.Join(tmp, "root")
	if _, err := run(ctx, "", "dpkg", "-x", files[0], dir); err != nil {
		return Package{}, fmt.Errorf("unpack %s: %w", pkg, err)
	}
	if err := os.Rename(dir, p.Dir); err != nil {
		if _, there := os.Stat(p.Dir); there == nil {
			return p, nil // another process was faster
		}
		return Package{}, err
	}
	return p, nil
}

// none marks the failure of a package manager as ErrNoDebian, unless it failed
// because our time was up.
func none(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoDebian, err)
}

func run(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w: %s is missing", ErrNoDebian, args[0])
	}
	if ctx.Err() != nil && err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(args, " "), ctx.Err())
	}
	if err != nil {
		lines := strings.TrimSpace(errs.String())
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lines[max(0, len(lines)-500):])
	}
	return string(out), nil
}

// Libraries returns the packages of libraries that a package depends on, by name.
func Libraries(ctx context.Context, pkg string) ([]string, error) {
	if !name.MatchString(pkg) {
		return nil, fmt.Errorf("%q is no name of a package", pkg)
	}
	out, err := run(ctx, "", "apt-cache", "depends", "--important", pkg)
	if err != nil {
		return nil, none(ctx, err)
	}
	var libs []string
	for line := range strings.Lines(out) {
		dep, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: ")
		if ok && name.MatchString(dep) && (strings.HasPrefix(dep, "lib") || strings.HasPrefix(dep, "lua")) && dep != "libc6" {
			libs = append(libs, dep)
		}
	}
	return libs, nil
}
