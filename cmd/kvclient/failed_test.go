package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// TestFailedKeys: each key is told of with its own reason, keys of the same reason in
// one line; what may have been done is not hidden behind what was not.
func TestFailedKeys(t *testing.T) {
	var errOut bytes.Buffer
	a := &app{stderr: &errOut}
	var failed keysErrors
	for i, why := range []error{
		&client.Unreached{Server: "a:1", Node: "a", Err: syscall.ECONNREFUSED, Asked: true},
		fmt.Errorf("%w: b is silent", client.ErrOutcomeUnknown),
		client.ErrDenied,
		&client.Unreached{Server: "a:1", Node: "a", Err: syscall.ECONNREFUSED, Asked: true},
		client.ErrDenied,
	} {
		key := fmt.Sprintf("k%d", i)
		failed = a.addFailed(failed, []byte(key), &client.Error{Op: "delete", Key: key, Err: why})
	}
	a.complain(failed)
	want := `kvclient: "k0", "k3": no server at a:1 (node a): connection refused (kvclient doctor a:1 tells more)
kvclient: "k1": rdmakv delete: outcome unknown: the request was sent, but no reply came: b is silent
kvclient: "k2", "k4": rdmakv delete: not allowed for this tenant
`
	if errOut.String() != want {
		t.Errorf("got\n%swant\n%s", &errOut, want)
	}
	if !errors.Is(failed, client.ErrOutcomeUnknown) || !errors.Is(failed, client.ErrDenied) || len(client.UnreachedServers(failed)) != 1 {
		t.Errorf("%v", failed)
	}
}

// TestKeysFailOneByOne: so it is with get and delete of several keys.
func TestKeysFailOneByOne(t *testing.T) {
	c, err := client.Dial(t.Context(), client.Config{Servers: []string{alone(t)}, Fabric: iwarp.New(iwarp.Options{}), HeapMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Put(t.Context(), []byte("here"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("x"), 5000) // the command line would not take these
	keys := [][]byte{{}, long, []byte("here"), []byte("nokey"), {}}
	for _, what := range []string{"get", "delete"} { // what is deleted cannot be got
		var out, errOut bytes.Buffer
		a := &app{stdout: &out, stderr: &errOut}
		if what == "get" {
			a.complain(a.getKeys(t.Context(), c, keys))
		} else {
			a.complain(a.deleteKeys(t.Context(), c, keys, 0))
		}
		lines := strings.Split(strings.TrimSpace(errOut.String()), "\n")
		if len(lines) != 3 || lines[0] != `kvclient: "nokey": key not found` ||
			!strings.HasPrefix(lines[1], `kvclient: "", "": `) || !strings.Contains(lines[1], client.ErrKeyEmpty.Error()) ||
			!strings.HasPrefix(lines[2], `kvclient: "xxx`) || !strings.Contains(lines[2], client.ErrKeyTooLarge.Error()) {
			t.Errorf("%s: %q", what, lines)
		}
		if what == "get" && out.String() != "here\tv\n" {
			t.Errorf("it prints %q", &out)
		}
	}
}

// TestDoneBeforeAnError: what a command has done before an error is told behind the
// error, and nothing if it has done nothing.
func TestDoneBeforeAnError(t *testing.T) {
	for _, keys := range []int64{0, 3} {
		var errOut bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: new(bytes.Buffer), stderr: &errOut, env: []string{"HOME=/nonexistent"}}
		show := newProgress(&errOut, "deleted", 0, nil)
		show.bytes.Store(-1)
		show.keys.Store(keys)
		a.finish(show, errors.New("the server is gone"))
		if errOut.Len() > 0 {
			t.Errorf("before the error: %s", &errOut)
		}
		if code := a.run(t.Context(), []string{"get"}); code != exitUsage { // an error
			t.Errorf("exit code %d", code)
		}
		lines := strings.Split(strings.TrimSuffix(errOut.String(), "\n"), "\n")
		if !strings.HasPrefix(lines[0], "kvclient: get: KEY is missing") ||
			keys == 0 && len(lines) != 1 || keys > 0 && (len(lines) != 2 || !strings.HasPrefix(lines[1], "deleted 3 keys in ")) {
			t.Errorf("%d keys: %q", keys, lines)
		}
	}
}
