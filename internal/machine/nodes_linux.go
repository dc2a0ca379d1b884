package machine

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// nodesFile lists the NUMA nodes that have memory.
const nodesFile = "/sys/devices/system/node/has_memory"

// Nodes lists the NUMA nodes that have memory. A kernel without NUMA has node 0.
func Nodes() ([]int, error) { return nodesFrom(os.ReadFile) }

// nodesFrom is Nodes with the files of another machine.
func nodesFrom(read func(name string) ([]byte, error)) ([]int, error) {
	text, err := read(nodesFile)
	if os.IsNotExist(err) {
		return []int{0}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("machine: the NUMA nodes: %w", err)
	}
	list, ok := parseRanges(string(text))
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("machine: %s says %q", nodesFile, text)
	}
	return list, nil
}

// CheckNode says whether memory can be taken from a NUMA node. Its error wraps
// ErrNoNode and lists the nodes that there are.
func CheckNode(node int) error {
	list, err := Nodes()
	if err != nil {
		return err
	}
	if !slices.Contains(list, node) {
		return fmt.Errorf("%w: %d; there is %s", ErrNoNode, node, ranges(list))
	}
	return nil
}

// DeviceNode returns the NUMA node that RDMA devices stand at, by their names. It
// returns false if they stand at several, at none that is known, or at one without
// memory. Devices in software stand at none, and do not count.
func DeviceNode(devices ...string) (node int, ok bool) { return deviceNode(os.ReadFile, devices) }

// deviceNode is DeviceNode with the files of another machine.
func deviceNode(read func(name string) ([]byte, error), devices []string) (node int, ok bool) {
	node = -1 // what the kernel says of a device that stands at none
	for _, name := range devices {
		text, err := read("/sys/class/infiniband/" + name + "/device/numa_node")
		n, bad := strconv.Atoi(strings.TrimSpace(string(text)))
		switch {
		case err != nil || bad != nil || n < 0 || n == node:
		case node >= 0:
			return 0, false
		default:
			node = n
		}
	}
	nodes, err := nodesFrom(read)
	if err != nil || !slices.Contains(nodes, node) {
		return 0, false
	}
	return node, true
}
