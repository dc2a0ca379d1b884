package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/apptest"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server"
)

// TestTenantWithoutMemory: a tenant whose keys are limited to a prefix may READ
// nothing. Commands that READ elsewhere do the rest of their work, or say so in a
// line.
func TestTenantWithoutMemory(t *testing.T) {
	const word = "the secret of a clerk, long enough"
	addr := apptest.Alone(t, func(c *server.Config) {
		c.Tenants = []server.Tenant{{Name: "clerk", Secret: secret.New([]byte(word)), Prefix: "desk/"}}
	})
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(word+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		line string
		code int
		says string // in what is printed, or in the error's line
	}{
		{"wait", cli.ExitOK, ""},
		{"put desk/k v", cli.ExitOK, ""},
		{"get desk/k", cli.ExitOK, "v"},
		{"ping -c 2", cli.ExitOK, "no one-sided access"},
		{"ping -c 2 -o json", cli.ExitOK, `"read":{"count":0`},
		{"cluster status", cli.ExitOK, "this tenant has no admin right"},
		{"doctor", cli.ExitOK, "no one-sided access"},
		{"inspect", cli.ExitError, "no one-sided access"},
		{"inspect desk/k", cli.ExitError, "no one-sided access"},
		{"inspect --region 0", cli.ExitError, "no one-sided access"},
	} {
		var out, errOut bytes.Buffer
		a := &app.App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut, Env: []string{"RDMAKV_SERVERS=" + addr, "RDMAKV_FABRIC=iwarp",
			"RDMAKV_TENANT=clerk", "RDMAKV_SECRET_FILE=" + file, "HOME=/nonexistent"}}
		code := a.Run(t.Context(), strings.Fields(tc.line), commands)
		if text := out.String() + errOut.String(); code != tc.code || !strings.Contains(text, tc.says) || strings.Count(errOut.String(), "\n") > 1 {
			t.Errorf("%s: exit code %d, want %d, and %q in:\n%s%s", tc.line, code, tc.code, tc.says, out.String(), errOut.String())
		}
	}
}
