package machine

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pinnedVar makes this test binary a process that pins itself and prints the
// result: affinity is for life, and would affect the other tests.
const pinnedVar = "MACHINE_TEST_PIN"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(pinnedVar)); err == nil {
		os.Exit(pinSelf(n))
	}
	os.Exit(m.Run())
}

// pinSelf pins this process while threads come and go and prints where each of
// its threads may run.
func pinSelf(cpu int) int {
	stop := make(chan struct{})
	for range 8 { // each holds a thread of its own
		ready := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(ready)
			<-stop
		}()
		<-ready
	}
	if err := Pin([]int{cpu}); err != nil {
		println(err.Error())
		return 1
	}
	late := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		late <- struct{}{}
		<-stop
	}()
	<-late
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		println(err.Error())
		return 1
	}
	for _, t := range tasks {
		id, _ := strconv.Atoi(t.Name())
		var set unix.CPUSet
		if unix.SchedGetaffinity(id, &set) == nil {
			os.Stdout.WriteString(ranges(members(&set)) + "\n")
		}
	}
	os.Stdout.WriteString("procs " + strconv.Itoa(runtime.GOMAXPROCS(0)) + "\n")
	return 0
}

// TestPin: every thread of a process, old or new, runs where it was told, and
// the Go runtime knows how many processors that is.
func TestPin(t *testing.T) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	for _, n := range members(&may) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "GOMAXPROCS=") }), pinnedVar+"="+strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(lines) < 10 {
			t.Fatalf("only %d lines: %s", len(lines), out)
		}
		for _, line := range lines[:len(lines)-1] {
			if line != strconv.Itoa(n) {
				t.Errorf("a thread may run on %s, want %d", line, n)
			}
		}
		if last := lines[len(lines)-1]; last != "procs 1" {
			t.Errorf("pinned to one processor: %s", last)
		}
	}
}

// TestPinRefuses: what does not exist is refused with what there is, and
// nothing is changed.
func TestPinRefuses(t *testing.T) {
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]int{{1023}, {-1}, {1 << 20}, {members(&before)[0], 1023}} {
		err := Pin(bad)
		if !errors.Is(err, ErrNoCPU) || !strings.Contains(err.Error(), ranges(members(&before))) {
			t.Errorf("Pin(%v) = %v, want ErrNoCPU with the processors that there are", bad, err)
		}
	}
	if err := Pin(nil); err != nil {
		t.Errorf("no processors: %v", err)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || before != after {
		t.Errorf("affinity changed to %s, %v", ranges(members(&after)), err)
	}
}

// TestNodes: the lists of other machines, and this one's.
func TestNodes(t *testing.T) {
	for text, want := range map[string][]int{"0\n": {0}, "0-1\n": {0, 1}, "0,2-4": {0, 2, 3, 4}, "": nil, "x": nil, "3-1": nil, "0-99999999": nil} {
		got, err := nodesFrom(func(string) ([]byte, error) { return []byte(text), nil })
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
		if want != nil && ranges(want) != strings.TrimSpace(text) {
			t.Errorf("%v is written %s", want, ranges(want))
		}
	}
	if got, err := nodesFrom(func(string) ([]byte, error) { return nil, fs.ErrNotExist }); err != nil || !slices.Equal(got, []int{0}) {
		t.Errorf("without NUMA: %v, %v", got, err)
	}
	list, err := Nodes()
	if err != nil || CheckNode(list[0]) != nil {
		t.Errorf("this machine: %v, %v", list, err)
	}
	if err := CheckNode(1000); !errors.Is(err, ErrNoNode) || !strings.Contains(err.Error(), "there is "+ranges(list)) {
		t.Errorf("node 1000: %v", err)
	}
}

// TestDeviceNode: memory is taken from the node of the devices, where there is one.
func TestDeviceNode(t *testing.T) {
	at := map[string]string{"mlx5_0": "1\n", "mlx5_1": "1\n", "bnxt_re0": "0\n", "far": "7\n", "none": "-1\n", "odd": "x"}
	read := func(name string) ([]byte, error) {
		if name == nodesFile {
			return []byte("0-1"), nil
		}
		name = strings.TrimSuffix(strings.TrimPrefix(name, "/sys/class/infiniband/"), "/device/numa_node")
		if text, ok := at[name]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
	for devices, want := range map[string]int{
		"": -1, "mlx5_0": 1, "mlx5_0 mlx5_1": 1, "bnxt_re0": 0, "mlx5_0 bnxt_re0": -1, "bnxt_re0 mlx5_0": -1,
		"iwarp0 mlx5_0 shm0": 1, "iwarp0 shm0": -1, "none": -1, "none mlx5_1": 1, "far": -1, "odd": -1,
	} {
		node, ok := deviceNode(read, strings.Fields(devices))
		if ok != (want >= 0) || ok && node != want {
			t.Errorf("%q: node %d, %v, want %d", devices, node, ok, want)
		}
	}
	if node, ok := DeviceNode(); ok {
		t.Errorf("no devices stand at node %d", node)
	}
}
