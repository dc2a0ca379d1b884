// Package image makes the kernel and the initial file system of a guest of the
// lab from Debian packages: the kernel and its modules from a package that is
// unpacked into a cache and not installed, programs and libraries from those that
// are installed on this machine. Nothing needs root.
package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cavaliergopher/cpio"
	"github.com/google/renameio/v2"

	"github.com/rdmakv/rdmakv/lab/deb"
)

// ErrMissing is in the chain of an error that says which programs or packages
// this machine lacks.
var ErrMissing = errors.New("the lab cannot be built here")

// A Config says what goes into a guest.
type Config struct {
	Cache   string   // directory of what is kept between boots
	Init    []byte   // the first program, a script of busybox's shell
	Agent   string   // file of the agent, a static program
	Modules []string // modules to load, beside the usual ones
	Extra   []string // files of modules that are not the kernel package's
	Files   []string // programs and files to take along, by full path
}

// An Image is what a guest boots from.
type Image struct {
	Release string // of the kernel, as in uname -r
	Kernel  string // file
	Initrd  string // file
}

// modules are loaded in this order, each after what it needs. Without the
// crc32 of the crypto layer rxe fails with "failed to init crc32 algorithm".
var modules = []string{
	"crc32_generic", "crc32_pclmul", "crc32c_generic",
	"virtio_pci", "virtio_console", "virtio_net", "virtio_blk",
	"9pnet_virtio", "9p", "ext4", "dummy", "ipv6",
	"ib_uverbs", "rdma_ucm",
}

// loadable can be loaded in the guest with modprobe, and are not at its start.
var loadable = []string{"rdma_rxe", "veth", "sch_netem", "loop"}

// A tool is a program in the guest and the package it comes from.
type tool struct{ name, pkg string }

// tools must be there; a guest without one of them would fail later.
var tools = []tool{
	{"dash", "dash"}, {"ip", "iproute2"}, {"rdma", "iproute2"}, {"tc", "iproute2"},
	{"ibv_devices", "ibverbs-utils"}, {"ibv_devinfo", "ibverbs-utils"}, {"ibv_rc_pingpong", "ibverbs-utils"},
	{"rping", "rdmacm-utils"}, {"udaddy", "rdmacm-utils"}, {"rdma_server", "rdmacm-utils"}, {"rdma_client", "rdmacm-utils"},
	{"ib_read_lat", "perftest"}, {"ib_read_bw", "perftest"}, {"ib_write_lat", "perftest"}, {"ib_write_bw", "perftest"},
	{"ib_send_lat", "perftest"}, {"ib_send_bw", "perftest"}, {"ib_atomic_lat", "perftest"}, {"ib_atomic_bw", "perftest"},
}

// handy are programs that the image contains if they are installed on this machine.
var handy = []string{"strace", "ss", "ping", "taskset", "bash"}

// terminals describes those that people use, for programs that edit lines.
var terminals = []string{"/lib/terminfo/l/linux", "/lib/terminfo/v/vt100", "/lib/terminfo/x/xterm", "/lib/terminfo/x/xterm-256color", "/lib/terminfo/s/screen", "/lib/terminfo/t/tmux"}

// plugins are libraries that are opened by name at run time, so that no
// program lists them: providers of libibverbs, what the tests open, and
// what programs built on this machine commonly need.
var plugins = []string{
	"libibverbs/librxe-rdmav*.so", "libibverbs/libsiw-rdmav*.so",
	"libibverbs.so.1", "librdmacm.so.1",
	"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libgcc_s.so.1", "libstdc++.so.6",
}

// Build makes the image, or finds the one that was made of the same parts.
func Build(ctx context.Context, c Config) (Image, error) {
	release, root, err := kernel(ctx, c.Cache)
	if err != nil {
		return Image{}, err
	}
	img := Image{Release: release, Kernel: unpacked(ctx, filepath.Join(root, "boot/vmlinuz-"+release), root+".vmlinux")}
	parts, err := collect(c, root, release)
	if err != nil {
		return Image{}, err
	}
	img.Initrd = filepath.Join(c.Cache, "initrd-"+parts.key())
	if exists(img.Initrd) {
		return img, nil
	}
	data, err := parts.pack()
	if err != nil {
		return Image{}, err
	}
	prune(filepath.Join(c.Cache, "initrd-*"))
	return img, replace(img.Initrd, data)
}

// prune removes images that are a day old: they are of other versions of their
// parts, or quickly made again. QEMU reads one only at its start.
func prune(pattern string) {
	old, _ := filepath.Glob(pattern) // the pattern is ours and well formed
	for _, f := range old {
		if info, err := os.Stat(f); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			os.Remove(f)
		}
	}
}

// kernel returns Debian's newest kernel, unpacked, with its modules listed.
func kernel(ctx context.Context, cache string) (release, root string, err error) {
	pkg, err := deb.Depends(ctx, "linux-image-amd64", "linux-image-")
	if err != nil {
		return "", "", err
	}
	p, err := deb.Unpack(ctx, cache, pkg)
	if err != nil {
		return "", "", err
	}
	release = strings.TrimPrefix(pkg, "linux-image-")
	list := filepath.Join(p.Dir, "lib/modules", release, "modules.dep")
	if !exists(list) {
		depmod := Find("depmod")
		if depmod == "" {
			return "", "", fmt.Errorf("%w: no depmod (package kmod)", ErrMissing)
		}
		out, err := exec.CommandContext(ctx, depmod, "-b", p.Dir, release).CombinedOutput()
		if err != nil {
			return "", "", fmt.Errorf("depmod: %w: %s", err, out)
		}
	}
	return release, p.Dir, nil
}

// A part is one entry of the file system.
type part struct {
	name     string // in the guest, without the leading slash
	from     string // file on this machine, or
	contents []byte // what to write
	target   string // of a symbolic link
	dir      bool
	perm     fs.FileMode
}

type parts []part

// collect lists everything that goes into the file system.
func collect(c Config, root, release string) (parts, error) {
	var ps parts
	// Directories that are empty now; those of files appear with them.
	for _, dir := range []string{"dev", "proc", "sys", "mnt", "data", "root", "run", "tmp", "lib/modules/extra", "usr/local/bin", "var/tmp"} {
		ps = append(ps, part{name: dir, dir: true})
	}
	agent, err := os.ReadFile(c.Agent) // by contents: its time changes with each build
	if err != nil {
		return nil, err
	}
	ps = append(ps,
		part{name: "sbin", target: "bin"}, part{name: "usr/sbin", target: "bin"}, part{name: "var/run", target: "/run"},
		part{name: "bin/sh", target: "/usr/bin/dash"}, // not busybox's, which prefers its own ip to the real one
		part{name: "init", contents: c.Init, perm: 0o755},
		part{name: "usr/bin/lab-agent", contents: agent, perm: 0o755},
		part{name: "etc/passwd", contents: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"), perm: 0o644},
		part{name: "etc/group", contents: []byte("root:x:0:\nnogroup:x:65534:\n"), perm: 0o644},
		part{name: "etc/nsswitch.conf", contents: []byte("hosts: files\npasswd: files\ngroup: files\n"), perm: 0o644},
	)
	for _, driver := range []string{"rxe", "siw"} {
		ps = append(ps, part{name: "etc/libibverbs.d/" + driver + ".driver", contents: []byte("driver " + driver + "\n"), perm: 0o644})
	}
	mods, err := moduleParts(c, filepath.Join(root, "lib/modules", release), release)
	if err != nil {
		return nil, err
	}
	user, err := userParts(c)
	return append(append(ps, mods...), user...), err
}

// moduleParts lists the modules and the lists that the guest loads them by.
func moduleParts(c Config, dir, release string) (parts, error) {
	f, err := os.Open(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := ReadModules(f)
	if err != nil {
		return nil, err
	}
	load := slices.Concat(all.present(modules), c.Modules)
	files, err := all.Files(slices.Concat(load, all.present(loadable))...)
	if err != nil {
		return nil, err
	}
	base := "lib/modules/" + release
	var ps parts
	for _, file := range files {
		name := base + "/" + file
		ps = append(ps, part{name: name, from: filepath.Join(dir, file), perm: 0o644})
	}
	ps = append(ps,
		part{name: base + "/modules.dep", contents: all.Table(files), perm: 0o644},
		part{name: "lib/modules/load", contents: []byte(strings.Join(load, " ") + "\n"), perm: 0o644})
	for _, file := range c.Extra {
		ps = append(ps, part{name: "lib/modules/extra/" + filepath.Base(file), from: file, perm: 0o644})
	}
	return ps, nil
}

// userParts lists programs and libraries, each under its name here.
func userParts(c Config) (parts, error) {
	busybox := Find("busybox")
	if busybox == "" {
		return nil, fmt.Errorf("%w: no busybox (package busybox-static)", ErrMissing)
	}
	if needed, err := needs(busybox); err != nil || len(needed) > 0 {
		return nil, fmt.Errorf("%w: %s is not static (package busybox-static): %w", ErrMissing, busybox, err)
	}
	ps := parts{{name: "bin/busybox", from: busybox, perm: 0o755}}
	files := slices.Clone(c.Files)
	var lack []string
	for _, t := range tools {
		if p := Find(t.name); p != "" {
			files = append(files, p)
		} else {
			lack = append(lack, t.name+" (package "+t.pkg+")")
		}
	}
	for _, name := range handy {
		if p := Find(name); p != "" {
			files = append(files, p)
		}
	}
	for _, file := range terminals {
		if exists(file) {
			files = append(files, file)
		}
	}
	for _, pattern := range plugins {
		var found []string
		for _, dir := range libDirs {
			if found, _ = filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 {
				break
			}
		}
		if found == nil {
			lack = append(lack, pattern+" (packages ibverbs-providers, librdmacm1, libc6, libstdc++6)")
		}
		files = append(files, found...)
	}
	if lack != nil {
		return nil, fmt.Errorf("%w: missing: %s", ErrMissing, strings.Join(lack, ", "))
	}
	libs, err := Libraries(files...)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, file := range append(files, libs...) {
		name := strings.TrimPrefix(file, "/")
		switch {
		case strings.HasPrefix(name, "sbin/"), strings.HasPrefix(name, "usr/sbin/"):
			name = "usr/bin/" + path.Base(name)
		case strings.HasPrefix(name, "bin/"):
			name = "usr/" + name // busybox fills /bin
		}
		if !seen[name] {
			seen[name] = true
			ps = append(ps, part{name: name, from: file, perm: 0o755})
		}
	}
	return ps, nil
}

// key is a hash of what the image is made of. Files count by name, size and
// time: reading them all at each boot would cost more than building anew.
func (ps parts) key() string {
	h := sha256.New()
	for _, p := range ps {
		fmt.Fprintf(h, "%s %q %q %v %q ", p.name, p.contents, p.target, p.perm, p.from)
		if info, err := os.Stat(p.from); p.from != "" && err == nil {
			fmt.Fprint(h, info.Size(), info.ModTime().UnixNano())
		}
	}
	return fmt.Sprintf("%.8x", h.Sum(nil))
}

// maxFile bounds one file of an initramfs: the kernel unpacks it into memory, and
// the archive has 32 bits for its size.
const maxFile = 1 << 31

// pack writes the file system as the kernel takes it (cpio's "new ASCII" format,
// Documentation/driver-api/early-userspace/buffer-format.rst). It is not
// compressed: a guest that unpacks it is slower than a host that reads it.
func (ps parts) pack() ([]byte, error) {
	var out bytes.Buffer
	a := cpio.NewWriter(&out)
	// entry writes one entry. The content of a link is its target.
	entry := func(name string, mode cpio.FileMode, data []byte) error {
		if len(data) > maxFile {
			return fmt.Errorf("%s is too large for an initramfs", name)
		}
		// No time is written: equal parts make equal archives.
		err := a.WriteHeader(&cpio.Header{Name: name, Mode: mode, Links: 1, Size: int64(len(data))})
		if err == nil {
			_, err = a.Write(data)
		}
		return err
	}
	made := map[string]bool{".": true}
	var mkdir func(name string) error
	mkdir = func(name string) error {
		if made[name] {
			return nil
		}
		made[name] = true
		if err := mkdir(path.Dir(name)); err != nil {
			return err
		}
		return entry(name, cpio.TypeDir|0o755, nil)
	}
	for _, p := range ps {
		err := mkdir(path.Dir(p.name))
		if err != nil {
			return nil, err
		}
		switch {
		case p.dir:
			err = mkdir(p.name)
		case p.target != "":
			err = entry(p.name, cpio.TypeSymlink|0o777, []byte(p.target))
		default:
			data := p.contents
			if p.from != "" {
				if data, err = os.ReadFile(p.from); err != nil {
					return nil, err
				}
			}
			err = entry(p.name, cpio.TypeReg|cpio.FileMode(p.perm.Perm()), data)
		}
		if err != nil {
			return nil, err
		}
	}
	err := a.Close()
	return out.Bytes(), err
}

// Find returns the full path of a program, also of one for root, or nothing.
func Find(name string) string {
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"} {
		if p := filepath.Join(dir, name); exists(p) {
			return p
		}
	}
	return ""
}

// replace writes a file that appears whole.
func replace(name string, data []byte) error {
	return renameio.WriteFile(name, data, 0o644, renameio.WithTempDir(filepath.Dir(name)), renameio.WithStaticPermissions(0o644))
}
