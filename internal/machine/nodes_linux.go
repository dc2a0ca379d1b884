package machine

import (
	"fmt"
	"os"
	"slices"
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
