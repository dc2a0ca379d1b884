package siw

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/lab/deb"
)

// Modules are modules of the kernel package that siw needs, for
// lab.Config.Modules.
func Modules() []string { return []string{"libcrc32c"} }

// ErrBuild is in the chain of an error that says that the compiler, or a
// program that the kernel's build uses, is missing or has failed.
var ErrBuild = errors.New("the siw module cannot be built here")

// A Variant is how the driver sets up connections. Its authors made these
// settings constants, so another setting is another module. The zero value is
// the driver as it is.
type Variant struct {
	Revision1  bool // initiates with MPA revision 1, without IRD and ORD
	RequireCRC bool // asks for CRC32C, and refuses a peer without
	PeerToPeer bool // initiates in peer-to-peer mode: begins with a frame of no bytes
}

// String names the variant for file names and tests: "as it is", "rev1-crc".
func (v Variant) String() string {
	var words []string
	for _, w := range []struct {
		on   bool
		name string
	}{{v.Revision1, "rev1"}, {v.RequireCRC, "crc"}, {v.PeerToPeer, "p2p"}} {
		if w.on {
			words = append(words, w.name)
		}
	}
	if words == nil {
		return "as it is"
	}
	return strings.Join(words, "-")
}

// edits returns what is replaced in siw_main.c, the definitions of the
// constants, old and new in turn.
func (v Variant) edits() []string {
	var e []string
	if v.Revision1 {
		e = append(e, "u_char mpa_version = MPA_REVISION_2;", "u_char mpa_version = MPA_REVISION_1;")
	}
	if v.RequireCRC {
		e = append(e, "const bool mpa_crc_required;", "const bool mpa_crc_required = true;")
	}
	if v.PeerToPeer {
		e = append(e, "const bool peer_to_peer;", "const bool peer_to_peer = true;")
	}
	return e
}

// Where the driver stands in the kernel's source, and the file with its
// constants.
const (
	driverDir  = "drivers/infiniband/sw/siw"
	driverMain = "siw_main.c"
)

// Build returns the file of siw.ko for the kernel that guests of the lab boot,
// Debian's newest of linux-image-amd64, built from Debian's source of that very
// version. Packages are downloaded and unpacked below the directory cache;
// nothing is installed. The first build takes about a minute, most of it to
// unpack the source; a second call finds the file. Each step is told to
// progress, which may be nil. Several processes may build at the same time.
func Build(ctx context.Context, cache string, v Variant, progress func(string)) (string, error) {
	if progress == nil {
		progress = func(string) {}
	}
	cache, err := filepath.Abs(cache)
	if err != nil {
		return "", err
	}
	image, err := deb.Depends(ctx, "linux-image-amd64", "linux-image-")
	if err != nil {
		return "", err
	}
	version, err := deb.Candidate(ctx, image)
	if err != nil {
		return "", err
	}
	release := strings.TrimPrefix(image, "linux-image-")
	b := build{cache: cache, release: release, version: version, progress: progress}
	dir := filepath.Join(cache, "siw-"+release+"_"+version+"-"+v.key())
	file := filepath.Join(dir, "siw.ko")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(cache, "siw.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(file); err == nil {
		return file, nil // another process was faster
	}
	if err := b.module(ctx, v, dir); err != nil {
		return "", err
	}
	return file, nil
}

// key tells variants apart in file names. It covers the edits themselves, so
// that a change of this file does not find what an older one has built.
func (v Variant) key() string {
	sum := sha256.Sum256([]byte(strings.Join(v.edits(), "\x00")))
	return fmt.Sprintf("%x", sum[:4])
}

// A build is one kernel's.
type build struct {
	cache, release, version string
	progress                func(string)
}

// module makes dir, whole or not at all.
func (b *build) module(ctx context.Context, v Variant, dir string) error {
	headers, err := b.headers(ctx)
	if err != nil {
		return err
	}
	source, err := b.source(ctx)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(b.cache, "siw-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.CopyFS(tmp, os.DirFS(source)); err != nil {
		return err
	}
	if err := v.apply(filepath.Join(tmp, driverMain)); err != nil {
		return err
	}
	b.progress("siw: compiling the module (" + v.String() + ") for " + b.release)
	if err := run(ctx, "make", "-C", headers, "M="+tmp, "CONFIG_RDMA_SIW=m", "modules"); err != nil {
		return err
	}
	// Debug information is ten times the code, and would go into an initramfs.
	out := filepath.Join(tmp, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	if err := run(ctx, "strip", "--strip-debug", "-o", filepath.Join(out, "siw.ko"), filepath.Join(tmp, "siw.ko")); err != nil {
		return err
	}
	return os.Rename(out, dir)
}

// apply edits the definitions of constants. A definition that is not there is
// an error: the driver has changed, and the variant would not be what it says.
func (v Variant) apply(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for e := v.edits(); len(e) > 0; e = e[2:] {
		if n := bytes.Count(text, []byte(e[0])); n != 1 {
			return fmt.Errorf("%w: %q stands %d times in %s, want once: this variant does not fit the driver", ErrBuild, e[0], n, driverMain)
		}
		text = bytes.Replace(text, []byte(e[0]), []byte(e[1]), 1)
	}
	return os.WriteFile(file, text, 0o644)
}

// headers returns the directory in which modules are built: the headers of
// Debian, unpacked into one tree, because they refer to each other.
func (b *build) headers(ctx context.Context) (string, error) {
	tree := filepath.Join(b.cache, "siw-headers-"+b.release+"_"+b.version)
	dir := filepath.Join(tree, "usr/src/linux-headers-"+b.release)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	// The main package names the others: -common, kbuild and the compiler's.
	main := "linux-headers-" + b.release
	packages := []string{main}
	for _, prefix := range []string{"linux-headers-", "linux-kbuild-", "linux-compiler-"} {
		dep, err := deb.Depends(ctx, main, prefix)
		if err != nil {
			return "", err
		}
		packages = append(packages, dep)
	}
	tmp, err := os.MkdirTemp(b.cache, "siw-unpack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for _, pkg := range packages {
		b.progress("siw: getting " + pkg)
		p, err := deb.Unpack(ctx, b.cache, pkg)
		if err != nil {
			return "", err
		}
		if err := run(ctx, "cp", "-a", p.Dir+"/.", tmp); err != nil {
			return "", err
		}
	}
	// The Makefile names the common headers by where they would be installed.
	makefile := filepath.Join(tmp, "usr/src", main, "Makefile")
	text, err := os.ReadFile(makefile)
	if err != nil {
		return "", err
	}
	text = bytes.ReplaceAll(text, []byte("/usr/src/"), []byte(tree+"/usr/src/"))
	if err := os.WriteFile(makefile, text, 0o644); err != nil {
		return "", err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	return dir, os.Rename(tmp, tree)
}

// source returns the directory of the driver's source.
func (b *build) source(ctx context.Context) (string, error) {
	base, _, _ := strings.Cut(b.version, "-") // 6.1.192
	parts := strings.Split(base, ".")
	if len(parts) < 2 {
		return "", fmt.Errorf("%w: the kernel has version %q", ErrBuild, b.version)
	}
	series := parts[0] + "." + parts[1]
	dir := filepath.Join(b.cache, "siw-source_"+b.version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	pkg := "linux-source-" + series
	b.progress("siw: getting " + pkg + ", about 140 MB")
	p, err := deb.Unpack(ctx, b.cache, pkg)
	if err != nil {
		return "", err
	}
	// All of the source is packed for nothing but these files.
	defer os.RemoveAll(p.Dir)
	if p.Version != b.version {
		return "", fmt.Errorf("%w: the kernel is version %s, its source %s (try apt-get update)", ErrBuild, b.version, p.Version)
	}
	tmp, err := os.MkdirTemp(b.cache, "siw-source-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	b.progress("siw: unpacking the driver")
	archive := filepath.Join(p.Dir, "usr/src", pkg+".tar.xz")
	if err := run(ctx, "tar", "-C", tmp, "-xJf", archive, pkg+"/"+driverDir); err != nil {
		return "", err
	}
	return dir, os.Rename(filepath.Join(tmp, pkg, driverDir), dir)
}

// run runs a program of the build; the end of its output is part of its error.
func run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "MAKEFLAGS=", "MAKELEVEL=")
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: %s is missing (packages make, gcc-12, binutils, xz-utils)", ErrBuild, args[0])
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w: %s", ErrBuild, strings.Join(args, " "), err, out[max(0, len(out)-2000):])
	}
	return nil
}

// lock makes builds in one cache take turns; the end of the process unlocks.
func lock(ctx context.Context, file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", file, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", file, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
