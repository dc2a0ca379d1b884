package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// FuzzArgs gives kvclient arbitrary arguments. It ends with one of its exit
// codes and prints no control characters. Nothing listens at the address that
// it is told, so nothing takes long.
func FuzzArgs(f *testing.F) {
	for _, line := range []string{"get k", "put k v", "scan --prefix a --limit 3", "bench --keys 1", "inspect --region 0", "import -",
		"--hex get 00", "-o json exists k", "get k --offset 1", "incr k --by -3", "touch k 10s", "batch -", "watch --count 1", "put k v --if-absent --ttl 1h", "get --meta k", "completion bash", "help get", "--timeout 1ms ping", "__complete get ''"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Fields(line)
		for _, a := range args {
			// The test must not touch files of this machine, and every address
			// but ours might belong to another program.
			if strings.ContainsAny(a, "/.:") || strings.HasPrefix(a, "--se") || strings.HasPrefix(a, "--t") || strings.HasPrefix(a, "--co") || a == "export" || strings.HasPrefix(a, "-f") || strings.HasPrefix(a, "--f") {
				return
			}
		}
		var stdout, stderr bytes.Buffer
		a := &app.App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
			Env: []string{"RDMAKV_SERVERS=127.0.0.1:1", "RDMAKV_TIMEOUT=20ms", "HOME=/nonexistent"}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		code := a.Run(ctx, args, commands)
		if code < cli.ExitOK || code > app.ExitNotFound && code != cli.ExitInterrupted {
			t.Fatalf("%q: exit code %d", args, code)
		}
		if code != cli.ExitOK && stderr.Len() == 0 {
			t.Fatalf("%q: exit code %d without a word", args, code)
		}
		if strings.ContainsAny(stderr.String(), "\x1b\x00\a") && !strings.ContainsAny(line, "\x1b\x00\a") {
			t.Fatalf("%q: standard error %q", args, stderr.String())
		}
	})
}
