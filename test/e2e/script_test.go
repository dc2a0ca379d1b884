package e2e

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rdmakv/rdmakv/test/node"
)

// TestScripts runs testdata/script: what a user types, and what comes back.
// Each script has a server of its own; kvclient finds it by RDMAKV_SERVERS.
//
// Beside the commands of testscript there is
//
//	code N PROGRAM ARGS...    run, and want this exit code
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			n, err := node.Start(t.Context(), node.Options{
				Bin: filepath.Join(bin, "kvserver"), Args: serverArgs(filepath.Join(env.WorkDir, ".data")), On: elsewhere,
			})
			if err != nil {
				return err
			}
			env.Defer(func() { _ = n.Kill() })
			env.Values["node"] = n
			env.Setenv("RDMAKV_SERVERS", n.Data)
			env.Setenv("RDMAKV_FABRIC", *fabricFlag)
			env.Setenv("DATA", filepath.Join(env.WorkDir, ".data"))
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":   scriptCode,
			"stopit": scriptStop,
		},
	})
}

// scriptCode runs a program and compares its exit code.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// scriptStop ends the script's server by SIGTERM.
func scriptStop(ts *testscript.TestScript, neg bool, args []string) {
	n := ts.Value("node").(*node.Node)
	code, err := n.Stop(20e9)
	ts.Check(err)
	if code != 0 {
		ts.Fatalf("the server ended with exit code %d", code)
	}
}
