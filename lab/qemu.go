package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/lab/image"
)

// Program is the emulator. It runs its guests without hardware help (TCG): KVM
// is often not allowed, and hangs on some machines that show /dev/kvm.
const Program = "qemu-system-x86_64"

// A machine is one running QEMU and the three sockets to it. They are made before
// QEMU starts and given to it: there are no file names, no port that another
// process could take, and no moment without a listener.
type machine struct {
	cmd     *exec.Cmd
	serial  net.Conn // to the agent
	monitor net.Conn
	console net.Conn
	stderr  tail

	ended chan struct{} // closed when QEMU has been waited for
	err   error         // set before
}

// arguments are the command line of QEMU. Files are numbers of descriptors.
func (c Config) arguments(img image.Image, serial, monitor, console, link int) []string {
	number := strconv.Itoa
	words := []string{
		// The kernel prints what it does until init.sh runs: that it goes on.
		"console=ttyS0", "panic=-1", "mitigations=off", "nokaslr",
		// On a busy host the emulated timer may not tick within the moment that the
		// kernel gives it at its start, and the kernel would panic.
		"no_timer_check",
		// Else two processors make the guest distrust the cycle counter, and
		// every look at the clock becomes a slow system call.
		"tsc=reliable",
		"LAB_NAME=" + c.Name, "LAB_IP=" + number(c.Number), "LAB_RDMA=" + c.RDMA, "LAB_MTU=" + number(c.MTU),
		"LAB_PORTS=" + number(c.Ports), "LAB_HUGE=" + number(c.Huge), "LAB_PEERS=" + number(c.Peers),
	}
	// The processor has everything that QEMU can do but "enhanced rep movsb": the
	// kernel would copy with that, which QEMU does byte by byte, and Soft-RoCE
	// would tear aligned words, as no real processor does.
	const processor = "max,-erms"
	args := []string{
		"-name", c.Name, "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
		"-cpu", processor, "-smp", number(c.CPUs), "-m", number(c.Memory),
		"-kernel", img.Kernel, "-initrd", img.Initrd,
		"-chardev", "socket,id=console,fd=" + number(console), "-serial", "chardev:console",
		"-chardev", "socket,id=monitor,fd=" + number(monitor), "-mon", "chardev=monitor,mode=control",
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=agent,fd=" + number(serial), "-device", "virtserialport,chardev=agent,name=agent",
		"-fsdev", "local,id=share,security_model=none,multidevs=remap,path=" + comma(c.Dir),
		"-device", "virtio-9p-pci,fsdev=share,mount_tag=host",
		"-netdev", "dgram,id=net0,local.type=fd,local.str=" + number(link),
		"-device", fmt.Sprintf("virtio-net-pci,id=nic0,netdev=net0,romfile=,host_mtu=%d,mac=52:54:00:77:00:%02x", max(c.MTU, 1500), c.Number),
		"-device", "virtio-rng-pci",
	}
	khz := tscKHz()
	if c.Count {
		// An instruction is 1 ns of the guest's clock (2 to the power of shift). With
		// sleep=on the clock of an idle guest would go at the host's pace, and what a
		// sleeping client waits would be the host's time: puts came out at 167,000 to
		// 215,000, with sleep=off at 163,500 to 163,800.
		args = append(args, "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-rtc", "clock=vm")
		khz = countedKHz
	} else {
		args = append(args, "-accel", "tcg,thread=multi")
	}
	if khz != 0 {
		words = append(words, "tsc_early_khz="+strconv.FormatUint(khz, 10))
	}
	if c.Disk != "" {
		args = append(args, "-drive", "if=virtio,format=raw,cache=writeback,file="+comma(c.Disk))
		words = append(words, "LAB_DISK=1")
	}
	return append(args, "-append", strings.Join(append(words, c.Kernel...), " "))
}

// comma writes a value for an option of QEMU, in which a comma is doubled.
func comma(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// start starts QEMU. The kernel kills it when this process ends, however.
func start(c Config, img image.Image) (*machine, error) {
	path, err := exec.LookPath(Program)
	if err != nil {
		return nil, fmt.Errorf("%w: no %s (Debian: apt-get install --no-install-recommends qemu-system-x86)", image.ErrMissing, Program)
	}
	m := &machine{ended: make(chan struct{})}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for _, conn := range []*net.Conn{&m.serial, &m.monitor, &m.console} {
		ours, file, err := socketPair()
		if err != nil {
			m.closeConns()
			return nil, err
		}
		*conn = ours
		theirs = append(theirs, file)
	}
	const first = 3 // number of the first of ExtraFiles in the child
	link, err := c.Link.File()
	if err != nil {
		m.closeConns()
		return nil, err
	}
	theirs = append(theirs, link)
	m.cmd = exec.Command(path, c.arguments(img, first, first+1, first+2, first+3)...)
	m.cmd.ExtraFiles = theirs
	m.cmd.Stderr = &m.stderr
	m.cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go func() {
		// The kernel kills QEMU when the thread that started it ends, so that
		// thread must live as long: it is this goroutine's.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			m.err = m.cmd.Wait()
			m.closeConns()
			close(m.ended)
		}
	}()
	if err := <-started; err != nil {
		m.closeConns()
		return nil, err
	}
	return m, nil
}

func (m *machine) closeConns() {
	for _, c := range []net.Conn{m.serial, m.monitor, m.console} {
		if c != nil {
			c.Close()
		}
	}
}

// kill ends QEMU at once, as a power cut would, and waits for its end.
func (m *machine) kill() error {
	err := m.cmd.Process.Kill()
	<-m.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// wait waits until QEMU has ended by itself, and kills it when ctx ends first.
func (m *machine) wait(ctx context.Context) error {
	select {
	case <-m.ended:
		return m.err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), m.kill())
	}
}

// socketPair returns two connected sockets: one for us and one as a file for
// the child.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	ours, theirs := os.NewFile(uintptr(fds[0]), "lab"), os.NewFile(uintptr(fds[1]), "qemu")
	defer ours.Close()
	conn, err := net.FileConn(ours) // a duplicate
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// A tail keeps the end of what was written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailLen = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailLen {
		t.buf = append([]byte(nil), t.buf[len(t.buf)-tailLen:]...)
	}
	return len(p), nil
}

// String returns the last lines, at most n.
func (t *tail) lines(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(bytes.ReplaceAll(t.buf, []byte("\r"), nil)), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}
