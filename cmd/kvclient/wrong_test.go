package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/apptest"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// TestWrongUses: every wrong use is one line that says what is wrong and what to
// do, to the letter.
func TestWrongUses(t *testing.T) {
	addr := apptest.Nobody(t)
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		// No server listens there.
		{"get k", 1, "no server at ADDR: connection refused (kvclient doctor ADDR tells more)"},
		{"put k v", 1, "no server at ADDR: connection refused (kvclient doctor ADDR tells more)"},
		{"ping", 1, "no server at ADDR: connection refused (kvclient doctor ADDR tells more)"},
		{"stats", 1, "no server at ADDR: connection refused (kvclient doctor ADDR tells more)"},
		{"cluster status", 1, "no server at ADDR: connection refused (kvclient doctor ADDR tells more)"},
		{"cluster init a b --wait 0s", 1, "no server at ADDR: connection refused (kvclient doctor ADDR tells more)"},
		{"wait", 1, "no server at ADDR: connection refused (kvclient doctor ADDR tells more)"},
		{"get k --server ADDR,ADDR2", 1, "no server at ADDR, ADDR2: connection refused (kvclient doctor ADDR tells more)"},
		{"get k --device mlx5_9", 1, `device: there is no "mlx5_9" here; devices: iwarp0 (kvclient fabric devices tells more)`},

		// Arguments.
		{"get", 2, "get: KEY is missing (usage: kvclient get KEY... [flags])"},
		{"put", 2, "put: KEY is missing (usage: kvclient put KEY [VALUE] [flags])"},
		{"put a b c", 2, `put: "c" is one argument too many; one with spaces in it needs quotes (usage: kvclient put KEY [VALUE] [flags])`},
		{"delete", 2, "delete: KEY is missing (usage: kvclient delete KEY... [flags], or --prefix PREFIX)"},
		{"delete a --prefix b", 2, "both KEY and --prefix are given"},
		{"delete --prefix b", 2, "delete --prefix asks before it deletes, and standard input is no terminal: say --yes"},
		{"delete --yes --prefix=", 2, "--prefix is empty: want the beginning of the keys to delete"},
		{"delete a b --if-version 3", 2, "--if-version goes with one KEY"},
		{"exists", 2, "exists: KEY is missing (usage: kvclient exists KEY [flags])"},
		{"touch k", 2, "touch: TTL is missing (usage: kvclient touch KEY TTL [flags])"},
		{"ttl", 2, "ttl: KEY is missing (usage: kvclient ttl KEY [flags])"},
		{"scan a b", 2, `scan: "b" is one argument too many; one with spaces in it needs quotes (usage: kvclient scan [PREFIX] [flags])`},
		{"scan a --prefix a", 2, "both PREFIX and --prefix are given"},
		{"ping x", 2, `ping takes no arguments, and "x" is one (usage: kvclient ping [flags])`},
		{"get a b --meta", 2, "--offset, --length, --meta, --version and --file go with one KEY"},
		{"get a b --bounded 0s", 2, "--bounded must be above 0, such as 100ms"},
		{"get k --bounded 0s", 2, "--bounded must be above 0, such as 100ms"},
		{"get k --bounded -1s", 2, "--bounded must be above 0, such as 100ms"},
		{"bench --bounded -1s", 2, "--bounded is -1s: more than 0, and without --registered"},
		{"bench --bounded 1s --registered", 2, "--bounded is 1s: more than 0, and without --registered"},
		{"admin revoke", 2, "admin revoke: TENANT is missing (usage: kvclient admin revoke TENANT [flags])"},
		{"cluster init", 2, "cluster init: NODE[:WEIGHT][@ZONE] is missing (usage: kvclient cluster init NODE[:WEIGHT][@ZONE]... [flags])"},
		{"cluster init a@r1 b@r2", 2, "zones (NODE@ZONE) are for clusters with replicas (--replicas 3)"},
		{"cluster init --replicas 3 a@r1 b@r2 c", 2, "2 of 3 nodes have a zone: either all have one or none has, because those without would count as one zone"},
		{"cluster init --replicas 3 a@ b c", 2, `"a@": zone "": 1 to 63 visible characters of ASCII are needed`},
		{"cluster add", 2, "cluster add: NODE[:WEIGHT][@ZONE] is missing (usage: kvclient cluster add NODE[:WEIGHT][@ZONE]... [flags])"},
		{"cluster add n4", 2, "cluster add asks before it begins, and standard input is no terminal: say --yes"},
		{"cluster add n4:0 --yes", 2, `"n4:0": the weight must be a number from 1 to 65536`},
		{"cluster add n4:x --yes", 2, `"n4:x": the weight must be a number from 1 to 65536`},
		{"cluster add n4:-1 --yes", 2, `"n4:-1": the weight must be a number from 1 to 65536`},
		{"cluster add n4:65537 --yes", 2, `"n4:65537": the weight must be a number from 1 to 65536`},
		{"cluster add n4@r\x01 --yes", 2, `"n4@r\x01": zone "r\x01": 1 to 63 visible characters of ASCII are needed`},
		{"cluster add N4 --yes", 2, `"N4": node id "N4": 1 to 63 of a-z, 0-9, '-' and '.' are needed, a letter or digit first and last`},
		{"cluster add n4 n4@r --yes", 2, `node "n4" is named twice`},
		{"cluster add n4 --dry-run --yes", 2, "--dry-run begins nothing: --yes and --detach do not go with it"},
		{"cluster add n4 --dry-run --detach", 2, "--dry-run begins nothing: --yes and --detach do not go with it"},
		{"cluster add n4 --yes --wait -1s", 2, "--wait is -1s, and must not be negative"},
		{"cluster remove", 2, "cluster remove: NODE is missing (usage: kvclient cluster remove NODE... [flags])"},
		{"cluster remove n1:2 --yes", 2, `"n1:2": node id "n1:2": 1 to 63 of a-z, 0-9, '-' and '.' are needed, a letter or digit first and last`},
		{"cluster remove n1 n1 --yes", 2, `node "n1" is named twice`},
		{"cluster replace n1", 2, "cluster replace: NEW[:WEIGHT][@ZONE] is missing (usage: kvclient cluster replace OLD NEW[:WEIGHT][@ZONE] [flags])"},
		{"cluster replace n1 n1 --yes", 2, `node "n1" cannot take its own place: give the new one another node_id`},
		{"cluster replace n1 n2 n3 --yes", 2, `cluster replace: "n3" is one argument too many; one with spaces in it needs quotes (usage: kvclient cluster replace OLD NEW[:WEIGHT][@ZONE] [flags])`},
		{"cluster rebalance n1", 2, `cluster rebalance takes no arguments, and "n1" is one (usage: kvclient cluster rebalance [flags])`},
		{"cluster rebalance", 2, "cluster rebalance asks before it begins, and standard input is no terminal: say --yes"},
		{"cluster replicas", 2, "cluster replicas: COUNT is missing (usage: kvclient cluster replicas COUNT [flags])"},
		{"cluster replicas 2 --yes", 2, `"2" replicas: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less`},
		{"cluster replicas 9 --yes", 2, `"9" replicas: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less`},
		{"cluster replicas three --yes", 2, `"three" replicas: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less`},
		{"cluster upgrade --yes", 2, "--replicas is missing: on how many nodes each key is to be, 1, 3, 5 or 7"},
		{"cluster upgrade --replicas 2 --yes", 2, "--replicas 2: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less"},
		{"cluster upgrade --replicas 3 --dry-run --yes", 2, "--dry-run begins nothing: --yes and --detach do not go with it"},
		{"cluster upgrade --replicas 3", 2, "cluster upgrade asks before it begins, and standard input is no terminal: say --yes"},
		{"cluster upgrade --replicas 3 --yes n1", 2, `"n1": NODE@ZONE is meant; which nodes there are and their weights stay as they are`},
		{"cluster upgrade --replicas 3 --yes n1:2@r1", 2, `"n1:2@r1": NODE@ZONE is meant; which nodes there are and their weights stay as they are`},
		{"cluster upgrade --replicas 3 --yes n1@r1 n1@r2", 2, `node "n1" is named twice`},
		{"cluster cancel", 2, "cluster cancel: TASK is missing (usage: kvclient cluster cancel TASK [flags])"},
		{"cluster cancel n4", 2, `"n4" is no task: want its number, which kvclient cluster tasks shows`},
		{"cluster cancel 0", 2, `"0" is no task: want its number, which kvclient cluster tasks shows`},
		{"cluster pause now", 2, `cluster pause takes no arguments, and "now" is one (usage: kvclient cluster pause [flags])`},
		{"cluster move 3 n4", 2, `unknown command "move"; did you mean "replace"?; kvclient cluster --help lists the commands`},
		{"fabric perf a b", 2, `fabric perf: "b" is one argument too many; one with spaces in it needs quotes (usage: kvclient fabric perf [HOST:PORT] [flags])`},

		// Commands and flags.
		{"gte k", 2, `unknown command "gte"; did you mean "get"?; kvclient --help lists the commands`},
		{"set k v", 2, `unknown command "set"; did you mean "put"?; kvclient --help lists the commands`},
		{"mget k", 2, `unknown command "mget"; did you mean "get"?; kvclient --help lists the commands`},
		{"keys", 2, `unknown command "keys"; did you mean "scan"?; kvclient --help lists the commands`},
		{"ls", 2, `unknown command "ls"; did you mean "scan"?; kvclient --help lists the commands`},
		{"info", 2, `unknown command "info"; did you mean "stats"?; kvclient --help lists the commands`},
		{"help frobnicate", 2, `unknown command "frobnicate"; kvclient --help lists the commands`},
		{"help gte", 2, `unknown command "gte"; did you mean "get"?; kvclient --help lists the commands`},
		{"help cluster stauts", 2, `unknown command "stauts"; did you mean "status"?; kvclient cluster --help lists the commands`},
		{"cluster add kv9 --yes --wait 0s", 1, "no server at ADDR: connection refused (kvclient doctor ADDR tells more)"},
		{"cluster tasks", 1, "no server at ADDR: connection refused (kvclient doctor ADDR tells more)"},
		{"cluster cancel 3", 1, "no server at ADDR: connection refused (kvclient doctor ADDR tells more)"},
		{"fabric perf ADDR", 1, "no server at ADDR: connection refused (kvclient fabric perf --serve ADDR is one)"},
		{"frobnicate", 2, `unknown command "frobnicate"; kvclient --help lists the commands`},
		{"cluster stauts", 2, `unknown command "stauts"; did you mean "status"?; kvclient cluster --help lists the commands`},
		{"get k --timout 3s", 2, `unknown flag "--timout"; did you mean --timeout?; kvclient get --help lists the flags`},
		{"get -z k", 2, `unknown flag "-z"; kvclient get --help lists the flags`},
		{"get k --offset", 2, "--offset needs a value: first byte to read"},

		// Values.
		{"incr k --by abc", 2, `--by "abc": want a whole number`},
		{"put k v --if-version x", 2, `--if-version "x": want a whole number, not negative`},
		{"bench --duration 5", 2, `--duration "5": want a time with a unit, as 90s, 15m or 1.5h`},
		{"bench --value-size 1x", 2, `--value-size: "1x" is no size: want bytes, as 100, 4KiB or 1MiB`},
		{"get k --fabric tcp", 2, `--fabric: "tcp" is not one of auto, verbs, iwarp, shm`},
		{"get k --timeout 5", 2, `--timeout: want a number with a unit: ns, us, ms, s, m or h, as in 2s or 1.5ms, got "5"`},
		{"get --hex abc", 2, `KEY "abc" is not hexadecimal: want an even number of digits 0-9, a-f`},
		{"ping -o yaml", 2, `--output is "yaml", want text or json`},
	} {
		second := apptest.Nobody(t)
		fill := strings.NewReplacer("ADDR2", second, "ADDR", addr)
		var stdout, stderr bytes.Buffer
		a := &app.App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
			Env: []string{"RDMAKV_SERVERS=" + addr, "RDMAKV_FABRIC=iwarp", "RDMAKV_TIMEOUT=400ms", "HOME=/nonexistent"}}
		code := a.Run(t.Context(), strings.Fields(fill.Replace(c.line)), commands)
		if want := "kvclient: " + fill.Replace(c.want) + "\n"; code != c.code || stderr.String() != want || stdout.Len() > 0 {
			t.Errorf("%s: exit code %d, want %d\n got %swant %s%s", c.line, code, c.code, &stderr, want, &stdout)
		}
	}
}

// TestMissingCommand: a command that only has commands below it says that one is
// missing, lists them, one a line, and suggests one for a mistyped name.
func TestMissingCommand(t *testing.T) {
	groups := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if !c.HasSubCommands() {
			return
		}
		groups++
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		run := func(args ...string) (int, []string) {
			var stdout, stderr bytes.Buffer
			a := &app.App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Env: []string{"HOME=/nonexistent", "RDMAKV_SERVERS=no address"}}
			code := a.Run(t.Context(), append(strings.Fields(path), args...), commands)
			if stdout.Len() > 0 {
				t.Errorf("%s %q: %s", c.CommandPath(), args, &stdout)
			}
			return code, strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
		}
		code, lines := run()
		want := "kvclient: a command is missing; " + c.CommandPath() + " --help tells more, the commands are"
		if path != "" {
			want = strings.Replace(want, "a command", path+": a command", 1)
		}
		if code != cli.ExitUsage || lines[0] != want {
			t.Errorf("%s: exit code %d\n got %s\nwant %s", c.CommandPath(), code, lines[0], want)
		}
		var subs []*cobra.Command
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				subs = append(subs, sub)
			}
			walk(sub)
		}
		if len(lines) != len(subs)+1 {
			t.Errorf("%s: %d lines for %d commands", c.CommandPath(), len(lines), len(subs))
			return
		}
		for i, sub := range subs {
			if !strings.HasPrefix(lines[i+1], "  "+sub.Use+" ") || !strings.HasSuffix(lines[i+1], "  "+sub.Short) {
				t.Errorf("%s: %q for %s", c.CommandPath(), lines[i+1], sub.Use)
			}
		}
		typo := subs[0].Name() + "z"
		if code, lines = run(typo); code != cli.ExitUsage || len(lines) != 1 || !strings.Contains(lines[0], fmt.Sprintf("unknown command %q; did you mean %q?", typo, subs[0].Name())) {
			t.Errorf("%s %s: exit code %d, %q", c.CommandPath(), typo, code, lines)
		}
	}
	walk((&app.App{Stderr: new(bytes.Buffer)}).Root(commands))
	if groups != 6 {
		t.Errorf("%d commands have commands below them, want kvclient, admin, cluster, cluster backups, fabric, completion", groups)
	}
}

// TestMissedIsExplained: reasons that the one line leaves out are in the log at
// debug.
func TestMissedIsExplained(t *testing.T) {
	var stderr bytes.Buffer
	a := &app.App{Stdin: strings.NewReader(""), Stdout: new(bytes.Buffer), Stderr: &stderr,
		Env: []string{"RDMAKV_SERVERS=" + apptest.Nobody(t), "RDMAKV_TIMEOUT=300ms", "HOME=/nonexistent", "RDMAKV_SHM_DIR=" + t.TempDir()}}
	if code := a.Run(t.Context(), []string{"get", "k", "--log-level", "debug"}, commands); code != cli.ExitError {
		t.Errorf("exit code %d", code)
	}
	for _, word := range []string{"fabric=shm", "fabric=verbs", "fabric=iwarp", "no socket"} {
		if !strings.Contains(stderr.String(), word) {
			t.Errorf("no %q in\n%s", word, &stderr)
		}
	}
}
