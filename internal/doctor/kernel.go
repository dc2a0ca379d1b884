package doctor

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// rdma examines everything from the kernel's modules up to the devices' ports.
func (e *deviceExam) rdma() {
	if e.set.Fabric == "iwarp" || e.set.Fabric == "shm" {
		e.skip("rdma", "", "fabric: %s is done in software; no RDMA device is used", e.set.Fabric)
		return
	}
	devices := e.names("sys/class/infiniband")
	// If there is no device and the configuration does not ask for one, nothing
	// is missing.
	if len(devices) == 0 && !e.hard() {
		e.ok("rdma", "", "this kernel shows no RDMA device, and the configuration asks for none: iwarp is used, in software")
		return
	}
	if len(devices) == 0 {
		e.bad(Fail, "devices", "", CodeNoDevice,
			"load the NIC's module (mlx5_ib, irdma, bnxt_re, qedr, cxgb4) or, on an ordinary interface: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE",
			"this kernel shows no RDMA device, and the configuration insists on one")
	}
	e.modules(devices)
	e.libraries()
	for _, name := range e.chosen(devices) {
		e.device(name)
	}
}

// modules looks for the modules that rdma-core needs. They may be built in:
// then /sys/module has them only if they have parameters, but their files are
// there.
func (e *deviceExam) modules(devices []string) {
	for _, m := range []struct {
		name, shows string
		need        bool
	}{
		{"ib_uverbs", "sys/class/infiniband_verbs", true},
		{"rdma_ucm", "sys/class/misc/rdma_cm", e.set.VerbsConnect != "tcp"},
	} {
		switch {
		case !m.need:
			e.skip("module", m.name, "verbs_connect: tcp does not use it")
		case e.exists("sys/module", m.name), e.exists(m.shows):
			e.ok("module", m.name, "loaded")
		default:
			e.bad(e.without(), "module", m.name, CodeModule, "modprobe "+m.name+", and a line with its name in /etc/modules-load.d/rdma.conf",
				"not loaded, and the devices %s cannot be used without it", orNone(devices))
		}
	}
}

// libraries looks whether rdma-core is there, as far as the configuration needs it.
func (e *deviceExam) libraries() {
	verbs, cm := e.Libraries()
	for _, l := range []struct {
		name string
		err  error
		need bool
	}{
		{"libibverbs", verbs, true},
		{"librdmacm", cm, e.set.VerbsConnect != "tcp"},
	} {
		switch {
		case !l.need:
			e.skip("library", l.name, "verbs_connect: tcp does not use it")
		case l.err == nil:
			e.ok("library", l.name, "loaded and answers")
		case !errors.As(l.err, new(*ibv.LoadError)):
			e.bad(e.without(), "library", l.name, CodeModule, "modprobe ib_uverbs rdma_ucm and the module of the NIC; in a container hand /dev/infiniband in",
				"it is here, and the kernel does not answer it: %v", l.err)
		default:
			e.bad(e.without(), "library", l.name, CodeLibrary, "Debian and Ubuntu: apt-get install rdma-core ibverbs-providers librdmacm1; Fedora, RHEL: dnf install rdma-core libibverbs librdmacm",
				"%v", l.err)
		}
	}
}

// chosen are the devices to look at: those that were named, else all. Names
// that do not exist are findings.
func (e *deviceExam) chosen(devices []string) []string {
	var list []string
	for _, name := range e.set.Devices {
		switch {
		case slices.Contains(devices, name):
			list = append(list, name)
		case name != softDevice && name != nearDevice:
			e.bad(Fail, "device", name, CodeDeviceName, "correct device: in the configuration, or name none to let the program choose",
				"there is no such device; this kernel has %s, and %s is the one in software", orNone(devices), softDevice)
		}
	}
	if len(e.set.Devices) == 0 {
		return devices
	}
	return list
}

// deviceFiles are the files through which a process uses a device.
func (e *deviceExam) deviceFiles(name string) (usable bool) {
	usable = true
	files := []string{}
	for _, uverbs := range e.names("sys/class/infiniband", name, "device/infiniband_verbs") {
		files = append(files, "dev/infiniband/"+uverbs)
	}
	if len(files) == 0 { // software devices have no device/: look from the other side
		for _, uverbs := range e.names("sys/class/infiniband_verbs") {
			if e.line("sys/class/infiniband_verbs", uverbs, "ibdev") == name {
				files = append(files, "dev/infiniband/"+uverbs)
			}
		}
	}
	if e.set.VerbsConnect != "tcp" {
		files = append(files, "dev/infiniband/rdma_cm")
	}
	for _, file := range files {
		path := e.path(file)
		switch err := mayUse(path); {
		case err == nil:
			e.ok("device file", "/"+file, "may be opened%s", openToAll(path))
		case errors.Is(err, fs.ErrNotExist):
			usable = false
			e.bad(e.without(), "device file", "/"+file, CodeDeviceFile,
				"modprobe ib_uverbs rdma_ucm; in a container hand the device in (Kubernetes: the resource of an RDMA device plugin; docker: --device /"+file+")",
				"it is not there, and %s cannot be used without it", name)
		default:
			usable = false
			e.bad(e.without(), "device file", "/"+file, CodeDeviceFile,
				"put the user into the group of the file (ls -l shows it, often rdma), then log in again; in a unit SupplementaryGroups=rdma, and DeviceAllow= where devices are closed",
				"this user may not open it: %v", err)
		}
	}
	return usable
}

// mayUse is nil if this process may read and write a file. It does not open the
// file, because that would make a context of the device.
func mayUse(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
}

// openToAll notes that every user of the machine can make queue pairs: they can
// forge packets towards sessions of others.
func openToAll(path string) string {
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm()&0o006 != 0o006 {
		return ""
	}
	return " (by every user of this machine; a udev rule with MODE=0660, GROUP=rdma narrows that)"
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
