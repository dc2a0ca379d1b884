//go:build linux && cgo

package ibv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestABI compares what the shim assumes of rdma-core's binary interface with
// the headers of this machine: every size, offset, constant and type.
func TestABI(t *testing.T) {
	compiler(t)
	for _, header := range []string{"infiniband/verbs.h", "rdma/rdma_cma.h"} {
		if _, err := os.Stat("/usr/include/" + header); err != nil {
			if os.Getenv("RDMAKV_REQUIRE_LAB") == "1" {
				t.Fatalf("the headers of rdma-core ought to be here (libibverbs-dev, librdmacm-dev): %v", err)
			}
			t.Skipf("no headers of rdma-core here: %v", err)
		}
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	check := func(dir string) (string, error) {
		out, err := exec.Command("cc", "-std=gnu11", "-fsyntax-only", "-I"+dir, "testdata/abi_check.c").CombinedOutput()
		return string(out), err
	}
	if out, err := check(here); err != nil {
		t.Fatalf("the binary interface differs from the headers: %v\n%s", err, out)
	}

	// The table follows the size of a mutex, which is 48 bytes with glibc on arm64:
	// by a C library here that has it so, and by a compiler for arm64 if there is one.
	libc := t.TempDir()
	mutex := "#include_next <pthread.h>\n#ifndef RK_MUTEX\n#define RK_MUTEX\ntypedef struct { long all[6]; } rk_mutex;\n" +
		"#define pthread_mutex_t rk_mutex\n#endif\n"
	if err := os.WriteFile(filepath.Join(libc, "pthread.h"), []byte(mutex), 0o644); err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(t.TempDir(), "both.c")
	text := "#include <pthread.h>\n_Static_assert(sizeof(pthread_mutex_t) == 48, \"mutex\");\n#include \"abi_check.c\"\n"
	if err := os.WriteFile(both, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	compile := func(cc string, flags ...string) {
		args := append([]string{"-std=gnu11", "-fsyntax-only", "-I" + here, "-I" + filepath.Join(here, "testdata")}, flags...)
		if out, err := exec.Command(cc, append(args, both)...).CombinedOutput(); err != nil {
			t.Errorf("the binary interface differs from the headers, by %s %v: %v\n%s", cc, flags, err, out)
		}
	}
	compile("cc", "-I"+libc)
	if cross, err := exec.LookPath("aarch64-linux-gnu-gcc"); err == nil {
		// The headers of rdma-core and no others of this machine.
		headers := t.TempDir()
		for _, dir := range []string{"infiniband", "rdma"} {
			if err := os.Symlink("/usr/include/"+dir, filepath.Join(headers, dir)); err != nil {
				t.Fatal(err)
			}
		}
		compile(cross, "-idirafter", headers)
	} else {
		t.Logf("no compiler for arm64 here, its own headers are not tried: %v", err)
	}

	// One number of each kind is changed: the check must see it.
	for _, c := range []struct{ file, from, to, says string }{
		{"abi.h", "W(ibv_wc, 48)", "W(ibv_wc, 56)", "size of struct ibv_wc"},
		{"abi.h", "F(ibv_mr, 40, uint32_t, rkey", "F(ibv_mr, 44, uint32_t, rkey", "offset of ibv_mr.rkey"},
		{"abi.h", "F(ibv_port_attr, 34, uint16_t, lid", "F(ibv_port_attr, 34, uint8_t, lid", "size of ibv_port_attr.lid"},
		{"abi.h", "A(ibv_device, 24, char, 64", "A(ibv_device, 24, char, 63", "size of ibv_device.name"},
		{"abi.h", "ABI_QUERY_PORT_BEFORE 320", "ABI_QUERY_PORT_BEFORE 312", "query_port"},
		{"abi_constants.h", "K(IBV_WR_RDMA_READ, 4)", "K(IBV_WR_RDMA_READ, 5)", "IBV_WR_RDMA_READ"},
		{"abi_calls.h", "X(int, ibv_dereg_mr, (ABI(ibv_mr) *))", "X(int, ibv_dereg_mr, (ABI(ibv_qp) *))", "ibv_dereg_mr"},
		{"abi_calls.h", "X(int, poll_cq, (ABI(ibv_cq) *, int,", "X(int, poll_cq, (ABI(ibv_cq) *, long,", "poll_cq"},
	} {
		dir := t.TempDir()
		for _, file := range []string{"abi.h", "abi_constants.h", "abi_calls.h"} {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text := string(data)
			if file == c.file {
				if strings.Count(text, c.from) != 1 {
					t.Fatalf("%s has %q %d times", file, c.from, strings.Count(text, c.from))
				}
				text = strings.Replace(text, c.from, c.to, 1)
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := check(dir); err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s instead of %s was not seen: %v\n%s", c.to, c.from, err, out)
		}
	}
}
