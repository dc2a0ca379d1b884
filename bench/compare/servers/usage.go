package servers

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor times in /proc: USER_HZ, which is 100 on every
// architecture of Linux that Go knows.
const tick = 10 * time.Millisecond

// CPU is the processor time that a process has used, user and system, in steps
// of 10 ms.
func CPU(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseCPU(string(data))
}

// parseCPU reads the user and system time in /proc/PID/stat, proc(5).
func parseCPU(stat string) (time.Duration, error) {
	// The second field is the name in parentheses, which may hold anything.
	_, rest, ok := cutLast(stat, ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("%q is no line of /proc/PID/stat", stat)
	}
	var sum time.Duration
	for _, field := range fields[11:13] { // utime and stime are fields 14 and 15
		n, err := strconv.ParseUint(field, 10, 40)
		if err != nil {
			return 0, fmt.Errorf("processor time %q in /proc/PID/stat", field)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Resident is the memory of a process that is in RAM, in bytes, and the part of
// it that is neither files nor shared.
func Resident(pid int) (all, private uint64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	return parseResident(string(data))
}

// parseResident reads VmRSS and RssAnon in /proc/PID/status, in bytes.
func parseResident(status string) (all, private uint64, err error) {
	var seen int
	for line := range strings.Lines(status) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		var to *uint64
		switch fields[0] {
		case "VmRSS:":
			to = &all
		case "RssAnon:":
			to = &private
		default:
			continue
		}
		n, err := strconv.ParseUint(fields[1], 10, 50)
		if err != nil {
			return 0, 0, fmt.Errorf("%q in /proc/PID/status", strings.TrimSpace(line))
		}
		*to = n << 10
		seen++
	}
	if seen != 2 {
		return 0, 0, fmt.Errorf("no VmRSS and RssAnon in /proc/PID/status")
	}
	return all, private, nil
}

// Available finds MemAvailable in the text of /proc/meminfo, in bytes.
func Available(meminfo string) (uint64, error) {
	for line := range strings.Lines(meminfo) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 50)
			if err != nil {
				return 0, fmt.Errorf("%q in /proc/meminfo", strings.TrimSpace(line))
			}
			return n << 10, nil
		}
	}
	return 0, errors.New("no MemAvailable in /proc/meminfo")
}
