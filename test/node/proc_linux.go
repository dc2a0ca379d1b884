package node

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// clockTick is the unit of times in /proc/PID/stat. It is 100 Hz on every
// Linux architecture that Go runs on, whatever the kernel's own rate.
const clockTick = time.Second / 100

// CPU is the processor time that the node has used so far, user and system.
func (n *Node) CPU() (time.Duration, error) {
	data, err := n.ReadProc("stat")
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in parentheses and may hold
	// anything; what follows its last ')' is field 3 and on.
	i := bytes.LastIndexByte(data, ')')
	fields := bytes.Fields(data[i+1:])
	if i < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("cannot read /proc/%d/stat", n.PID())
	}
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime, fields 14 and 15
		v, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += v
	}
	return time.Duration(ticks) * clockTick, nil
}
