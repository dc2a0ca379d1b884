package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// These bound the settings that decide how this process waits and where it
// runs.
const (
	maxCPU    = 1023 // the kernel's CPU_SETSIZE has 1024
	maxShmDir = 64   // an address of a UNIX socket has 107 bytes, and the name of one follows
)

// Spin is the longest time that a waiter spins before it sleeps. SpinAuto
// leaves it to the fabric.
type Spin time.Duration

// SpinAuto is the choice of the fabric; 0 is not to spin at all.
const SpinAuto = Spin(-1)

// String writes it so that it can be read again.
func (s Spin) String() string {
	if s == SpinAuto {
		return "auto"
	}
	return time.Duration(s).String()
}

func parseSpin(in any) (any, error) {
	switch v := in.(type) {
	case Spin:
		return v, nil
	case string:
		if v == "auto" {
			return SpinAuto, nil
		}
		// A negative one is refused here: it might be taken for auto.
		if d, err := time.ParseDuration(v); err == nil && d >= 0 {
			return Spin(d), nil
		}
	}
	return nil, fmt.Errorf("want auto, or %s, got %s", durationGrammar, describe(in))
}

// CPUs are numbers of processors, each once, in the order of the file. If there
// are none, the process uses all that it may.
type CPUs []int

// String writes them so that they can be read again.
func (c CPUs) String() string {
	return "[" + strings.ReplaceAll(c.joined(), ",", ", ") + "]"
}

// joined is the form of variables and flags.
func (c CPUs) joined() string {
	var b []string
	for _, n := range c {
		b = append(b, strconv.Itoa(n))
	}
	return strings.Join(b, ",")
}

// parseCPUs reads a list of numbers and of ranges: [0, 1], "0,2-5".
func parseCPUs(in any) (any, error) {
	var items []any
	switch v := in.(type) {
	case CPUs:
		return v, nil
	case int:
		items = []any{v}
	case []any:
		items = v
	case string:
		if v != "" {
			for s := range strings.SplitSeq(v, ",") {
				items = append(items, strings.TrimSpace(s))
			}
		}
	default:
		return nil, fmt.Errorf("want a list of processor numbers, got %s", describe(in))
	}
	out := CPUs{} // never nil, which would read as "not said"
	for _, item := range items {
		first, last, err := cpuRange(item)
		if err != nil {
			return nil, err
		}
		for n := first; n <= last; n++ {
			if slices.Contains(out, n) {
				return nil, fmt.Errorf("has the processor %d twice", n)
			}
			out = append(out, n)
		}
	}
	return out, nil
}

// cpuRange reads 3 or 2-5.
func cpuRange(in any) (first, last int, err error) {
	bad := fmt.Errorf("want processor numbers from 0 to %d, as in 0,2-5, got %s", maxCPU, describe(in))
	switch v := in.(type) {
	case int:
		first, last = v, v
	case string:
		from, to, isRange := strings.Cut(v, "-")
		a, err := parseDigits(from)
		b := a
		if err == nil && isRange {
			b, err = parseDigits(to)
		}
		if err != nil || a > maxCPU || b > maxCPU {
			return 0, 0, bad
		}
		first, last = int(a), int(b)
	default:
		return 0, 0, bad
	}
	if first < 0 || last > maxCPU || first > last {
		return 0, 0, bad
	}
	return first, last, nil
}

// waitingFaults checks how both programs wait and where they run. Whether the
// processors exist is found out when they are set.
func (c *Config) waitingFaults(k *checker) {
	if c.Fabric == "shm" && c.Shm == "off" {
		k.fault("shm", "is off, and fabric: shm asks for it")
	}
	k.path("shm_dir", c.ShmDir, true)
	if len(c.ShmDir) > maxShmDir {
		k.fault("shm_dir", "has %d bytes, at most %d are allowed: addresses of UNIX sockets are short", len(c.ShmDir), maxShmDir)
	}
}
