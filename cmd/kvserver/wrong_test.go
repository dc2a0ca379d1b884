package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/config"
)

// TestWrongUses: a wrong command line is one line that says what is wrong.
func TestWrongUses(t *testing.T) {
	for line, want := range map[string]string{
		"start":               `unknown command "start"; did you mean "serve"?; kvserver --help lists the commands`,
		"bakup":               `unknown command "bakup"; did you mean "backup"?; kvserver --help lists the commands`,
		"--memory-limt 1GiB":  `unknown flag "--memory-limt"; did you mean --memory-limit?; kvserver --help lists the flags`,
		"--data-dir":          "--data-dir needs a value: directory of the durable store; made when missing",
		"backup":              "backup: DEST is missing (usage: kvserver backup DEST [flags])",
		"restore":             "restore: SRC is missing (usage: kvserver restore SRC [flags])",
		"serve now":           `serve takes no arguments, and "now" is one (usage: kvserver serve [flags])`,
		"--sync sometimes":    `--sync: "sometimes" is not one of always, interval, off`,
		"--memory-limit 5":    `--memory-limit: "5" is not a size: want a whole number with a unit: B, KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000), as in 64MiB`,
		"--gossip-profile la": `--gossip-profile: "la" is not one of lan, fast, wan; did you mean "lan"?`,
	} {
		var out, errOut bytes.Buffer
		a := &app{stdout: &out, stderr: &errOut, env: []string{"RDMAKV_CONFIG="}, fabrics: newFabrics}
		if code := a.run(t.Context(), strings.Fields(line)); code != cli.ExitUsage || errOut.String() != "kvserver: "+want+"\n" {
			t.Errorf("%s: exit code %d\n got %swant kvserver: %s", line, code, &errOut, want)
		}
	}
	var out bytes.Buffer
	if code := (&app{stdout: &out, stderr: &out}).run(t.Context(), []string{"--version"}); code != cli.ExitOK || !strings.HasPrefix(out.String(), "kvserver ") {
		t.Errorf("--version: exit code %d, %q", code, &out)
	}
}

// TestOldKeys: a key of an earlier version ends the program before it serves, in a file,
// as a variable and as a flag, with what has become of it.
func TestOldKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	for key, now := range map[string]string{
		"ack_timeout": "", "retry_count": "", "credits": "", "region_idle": "", "max_inflight": "",
		"spin": "expert.spin", "cores": "expert.cores", "service_level": "expert.service_level", "path_mtu": "expert.path_mtu",
		"max_sessions_per_host": "expert.max_sessions_per_host", "prefault": "expert.prefault", "region_size": "expert.region_size",
		"index_region_size": "expert.index_region_size", "scrub_rate": "", "numa_node": "",
	} {
		env, flag := "RDMAKV_"+strings.ToUpper(key), "--"+strings.ReplaceAll(key, "_", "-")
		if err := os.WriteFile(file, []byte(key+": 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, layer := range []struct{ name, env, arg, now string }{
			{key, "RDMAKV_CONFIG=" + file, "serve", now},
			{env, env + "=1", "serve", strings.ToUpper("RDMAKV_" + strings.ReplaceAll(now, ".", "_"))},
			{flag, "X=1", flag + "=1", "--" + strings.NewReplacer("_", "-", ".", "-").Replace(now)},
		} {
			want := fmt.Sprintf("%q: it is %s now", layer.name, layer.now)
			if now == "" {
				want = fmt.Sprintf("%q: it is no setting any more: ", layer.name)
			}
			var out, errOut bytes.Buffer
			a := &app{stdout: &out, stderr: &errOut, env: []string{layer.env}, fabrics: newFabrics}
			if code := a.run(t.Context(), []string{layer.arg}); code != cli.ExitUsage || !strings.Contains(errOut.String(), want) || strings.Count(errOut.String(), "\n") != 1 {
				t.Errorf("%s: exit code %d\n got %swant %s", layer.name, code, &errOut, want)
			}
		}
	}
}

// TestPortsTaken: each port that is in use is named by its key, whichever the error
// is of, and the cause follows at once.
func TestPortsTaken(t *testing.T) {
	used := func() string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		return ln.Addr().String()
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	listen, admin, gossip := used(), used(), used()
	bound := fmt.Errorf("admin port (admin_listen): listen tcp 127.0.0.1:1: bind: %w", syscall.EADDRINUSE)
	text := errors.New("server: gossip: membership: gossip cannot listen at A: failed to start TCP listener on \"A\" port 1: listen tcp A: bind: address already in use")
	for _, c := range []struct {
		err  error
		cfg  config.Config
		want string
	}{
		{bound, config.Config{Listen: []string{listen}}, "listen " + listen + ": address already in use: another program has that port"},
		{bound, config.Config{Listen: []string{"127.0.0.1:0"}, AdminListen: admin}, "admin_listen " + admin + ": address already in use: another program has that port"},
		{text, config.Config{Gossip: config.Gossip{Bind: gossip}}, "gossip.bind " + gossip + ": address already in use: another program has that port"},
		{text, config.Config{Gossip: config.Gossip{Bind: conn.LocalAddr().String()}}, "gossip.bind " + conn.LocalAddr().String() + ": address already in use: another program has that port"},
		{bound, config.Config{Listen: []string{listen}, AdminListen: admin, Gossip: config.Gossip{Bind: gossip}},
			"listen " + listen + ", admin_listen " + admin + ", gossip.bind " + gossip + ": addresses already in use: does another kvserver run here?"},
		{bound, config.Config{Listen: []string{"127.0.0.1:0"}}, bound.Error() + "; another program has that port"},
	} {
		if got := portsTaken(c.err, c.cfg); !errors.Is(got, syscall.EADDRINUSE) || got.Error() != c.want {
			t.Errorf("got %v\nwant %s", got, c.want)
		}
	}
	other := errors.New("other")
	if portsTaken(other, config.Config{Listen: []string{listen}}) != other {
		t.Error("another error was changed")
	}
}
