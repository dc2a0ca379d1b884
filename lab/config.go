package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Kinds of RDMA device that a guest can have.
const (
	RXE  = "rxe"  // Soft-RoCE, of Debian's kernel
	SIW  = "siw"  // soft-iWARP, whose module must be given in Config.Extra
	None = "none" // no RDMA device
)

// A Config describes a guest. The zero value of each field has a meaning.
type Config struct {
	Name    string        // host name; g1 if empty
	Number  int           // 1 to 99: its address is 10.77.0.Number; 1 if zero
	CPUs    int           // virtual processors; 2 if zero, 1 with Count
	Memory  int           // MiB; 1024 if zero
	Dir     string        // directory of the host that is /mnt in the guest; a new temporary one if empty
	RDMA    string        // RXE if empty
	Ports   int           // RDMA devices: the first on the Ethernet, others on 10.(77+i).0.Number; 1 if zero
	MTU     int           // of the Ethernet; 4500 if zero, which gives RoCE its largest, 4096
	Huge    int           // huge pages of 2 MiB, taken from Memory
	Disk    string        // raw image with an ext4 file system, /data in the guest; see NewDisk
	Peers   int           // guests g1 to gPeers stand in /etc/hosts; 1 if zero
	Modules []string      // modules of the kernel to load beside the usual ones
	Extra   []string      // files of modules to load after those
	Kernel  []string      // further words of the kernel's command line
	Files   []string      // programs and files of the host to take along, by full path
	Link    *net.UDPConn  // connected: each datagram is an Ethernet frame; nil means a cable that ends nowhere
	Cache   string        // where images are kept; .cache/lab of the repository if empty
	Log     string        // file for the console; none if empty (its end is part of errors anyway)
	Timeout time.Duration // for booting; 2 minutes if zero, 5 with Count
	Silence time.Duration // a guest that prints nothing for this long while it boots is started anew; a quarter of Timeout if zero
	// Count makes the guest's clocks count its instructions: each takes 1 ns, in
	// whichever program, in the kernel too, however busy the host is. Such a guest
	// has one processor and no peers. When the processor has nothing to do, the clocks
	// jump to the next deadline: a program that waits for the host, as for a file of
	// Dir, runs into its deadlines at once. So programs are started from Staged.
	Count bool
	// Progress is told what is going on, in one line each. It may be nil and is
	// called by one goroutine at a time.
	Progress func(string)
}

// These limit what a Config may ask for, so that a mistyped number does not
// take the host's memory.
const (
	maxCPUs   = 16
	maxMemory = 32 << 10
	maxPorts  = 4
	maxNumber = 99
)

// How long a guest may take to boot. One that counts has one thread of the host for
// its processor and its devices, and counting slows that down.
const (
	bootTime        = 2 * time.Minute
	countedBootTime = 5 * time.Minute
)

// filled returns the configuration with its defaults, or what is wrong with it,
// all at once.
func (c Config) filled() (Config, error) {
	set := func(p *int, value int) {
		if *p == 0 {
			*p = value
		}
	}
	set(&c.Number, 1)
	if c.Count {
		set(&c.CPUs, 1)
	}
	set(&c.CPUs, 2)
	set(&c.Memory, 1024)
	set(&c.Ports, 1)
	set(&c.MTU, 4500)
	set(&c.Peers, max(1, c.Number))
	if c.Name == "" {
		c.Name = fmt.Sprintf("g%d", c.Number)
	}
	if c.RDMA == "" {
		c.RDMA = RXE
	}
	if c.Timeout == 0 {
		c.Timeout = bootTime
		if c.Count {
			c.Timeout = countedBootTime
		}
	}
	if c.Silence == 0 {
		c.Silence = c.Timeout / 4
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	var wrong []error
	in := func(what string, v, low, high int) {
		if v < low || v > high {
			wrong = append(wrong, fmt.Errorf("%s is %d and must be from %d to %d", what, v, low, high))
		}
	}
	in("Number", c.Number, 1, maxNumber)
	in("CPUs", c.CPUs, 1, maxCPUs)
	if c.Count && c.CPUs > 1 {
		wrong = append(wrong, fmt.Errorf("CPUs is %d and must be 1 with Count (-smp, -count): instructions are counted on one processor", c.CPUs))
	}
	if c.Count && c.Link != nil {
		wrong = append(wrong, errors.New("with Count Link must be nil: the clock of such a guest is not that of others"))
	}
	in("Memory", c.Memory, 256, maxMemory)
	in("Ports", c.Ports, 1, maxPorts)
	in("MTU", c.MTU, 576, 9000)
	in("Peers", c.Peers, 1, maxNumber)
	in("Huge", c.Huge, 0, c.Memory/2*3/4)
	if c.RDMA != RXE && c.RDMA != SIW && c.RDMA != None {
		wrong = append(wrong, fmt.Errorf("RDMA is %q and must be %s, %s or %s", c.RDMA, RXE, SIW, None))
	}
	if !plain(c.Name) {
		wrong = append(wrong, fmt.Errorf("the name %q must be letters, digits and dashes, at most 32", c.Name))
	}
	if c.Timeout < 0 || c.Silence < 0 {
		wrong = append(wrong, fmt.Errorf("the Timeout is %v and the Silence %v, and must not be negative", c.Timeout, c.Silence))
	}
	for _, word := range c.Kernel {
		if strings.ContainsAny(word, " \t\n\"") {
			wrong = append(wrong, fmt.Errorf("%q is not one word of a command line", word))
		}
	}
	for _, f := range []string{c.Dir, c.Disk} {
		if f != "" {
			if _, err := os.Stat(f); err != nil {
				wrong = append(wrong, err)
			}
		}
	}
	if c.Cache == "" {
		root, err := Root()
		if err != nil {
			wrong = append(wrong, err)
		}
		c.Cache = filepath.Join(root, ".cache", "lab")
	}
	return c, errors.Join(wrong...)
}

func plain(name string) bool {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return false
		}
	}
	return name != "" && len(name) <= 32
}

// Root returns the directory of the module that the working directory is in.
// The lab works from a checkout: it compiles the agent of its guests.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("the lab must be started inside the repository: there is no go.mod here or above")
		}
		dir = up
	}
}

// PrintTo returns a Progress function that prints each line to w.
func PrintTo(w io.Writer) func(string) {
	return func(s string) { fmt.Fprintln(w, s) }
}
