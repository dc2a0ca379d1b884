package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
)

// nobody is an address at which nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestWrongUses: every wrong use is one line that says what is wrong and what to
// do, to the letter.
func TestWrongUses(t *testing.T) {
	addr := nobody(t)
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		// Nobody is there.
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
		{"admin revoke", 2, "admin revoke: TENANT is missing (usage: kvclient admin revoke TENANT [flags])"},
		{"cluster init", 2, "cluster init: NODE[:WEIGHT] is missing (usage: kvclient cluster init NODE[:WEIGHT]... [flags])"},
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
		{"cluster add kv9", 1, "cluster: changing the map of a live cluster is not possible yet: back up per shard with kvserver backup, and restore into a new cluster (kvclient cluster add --help has the steps)"},
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
		second := nobody(t)
		fill := strings.NewReplacer("ADDR2", second, "ADDR", addr)
		var stdout, stderr bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr,
			env: []string{"RDMAKV_SERVERS=" + addr, "RDMAKV_FABRIC=iwarp", "RDMAKV_TIMEOUT=400ms", "HOME=/nonexistent"}}
		code := a.run(t.Context(), strings.Fields(fill.Replace(c.line)))
		if want := "kvclient: " + fill.Replace(c.want) + "\n"; code != c.code || stderr.String() != want || stdout.Len() > 0 {
			t.Errorf("%s: exit code %d, want %d\n got %swant %s%s", c.line, code, c.code, &stderr, want, &stdout)
		}
	}
}

// TestMissingCommand: a command that only has commands below it says that one is
// missing, lists them, one a line, and knows what a mistyped one may have meant.
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
			a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, env: []string{"HOME=/nonexistent", "RDMAKV_SERVERS=no address"}}
			code := a.run(t.Context(), append(strings.Fields(path), args...))
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
		if code != exitUsage || lines[0] != want {
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
		if code, lines = run(typo); code != exitUsage || len(lines) != 1 || !strings.Contains(lines[0], fmt.Sprintf("unknown command %q; did you mean %q?", typo, subs[0].Name())) {
			t.Errorf("%s %s: exit code %d, %q", c.CommandPath(), typo, code, lines)
		}
	}
	walk((&app{stderr: new(bytes.Buffer)}).root())
	if groups != 5 {
		t.Errorf("%d commands have commands below them, want kvclient, admin, cluster, fabric, completion", groups)
	}
}

// TestMissed: the reason comes from the fabric that came farthest, in the words of
// the network, and each address is named once.
func TestMissed(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	at := func(server string, err error) *client.Unreached {
		return &client.Unreached{Server: server, Fabric: "iwarp", Err: fmt.Errorf("iwarp: %w: iwarp connect %s: %w: dial: %w", client.ErrUnavailable, server, rdma.ErrPeerGone, err), Asked: true}
	}
	node := at("c:1", refused)
	node.Node = "n3"
	silent := at("d:1", context.DeadlineExceeded)
	silent.Answered = true
	wrong := &client.Unreached{Server: "e:1", Fabric: "iwarp", Err: client.ErrAuth, Asked: true, Answered: true}
	bare := &client.Unreached{Server: "f:1", Fabric: "verbs", Err: fmt.Errorf("verbs route f:1: %w: ibv: no device", rdma.ErrNoDevice)}
	for _, c := range []struct {
		missed []*client.Unreached
		want   string
	}{
		{[]*client.Unreached{at("a:1", refused)}, "no server at a:1: connection refused"},
		{[]*client.Unreached{at("a:1", refused), at("b:1", refused)}, "no server at a:1, b:1: connection refused"},
		{[]*client.Unreached{node}, "no server at c:1 (node n3): connection refused"},
		{[]*client.Unreached{at("a:1", refused), at("h:1", &net.DNSError{Err: "no such host", Name: "h", IsNotFound: true})}, "no server at a:1: connection refused; no server at h:1: no such host"},
		{[]*client.Unreached{at("a:1", context.DeadlineExceeded)}, "no server at a:1: no answer"},
		{[]*client.Unreached{at("a:1", fmt.Errorf("%w: HTTP", rdma.ErrProtocol))}, "no server at a:1: what listens there is no rdmakv server (is it the address of listen?)"},
		{[]*client.Unreached{silent}, "a server accepts connections at d:1 and does not answer in time"},
		{[]*client.Unreached{wrong}, "refused by the server at e:1: authentication failed"},
		{[]*client.Unreached{bare}, "no way by verbs to f:1: no device"},
	} {
		if got := missedText(c.missed); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	// A write that may have been done is told of as that.
	a := &app{}
	if got := a.explain(errors.Join(client.ErrOutcomeUnknown, at("a:1", refused))); !strings.Contains(got, "outcome unknown") {
		t.Error(got)
	}
}

// TestMissedIsExplained: what one line leaves out is in the log at debug.
func TestMissedIsExplained(t *testing.T) {
	var stderr bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: new(bytes.Buffer), stderr: &stderr,
		env: []string{"RDMAKV_SERVERS=" + nobody(t), "RDMAKV_TIMEOUT=300ms", "HOME=/nonexistent", "RDMAKV_SHM_DIR=" + t.TempDir()}}
	if code := a.run(t.Context(), []string{"get", "k", "--log-level", "debug"}); code != exitError {
		t.Errorf("exit code %d", code)
	}
	for _, word := range []string{"fabric=shm", "fabric=verbs", "fabric=iwarp", "no socket"} {
		if !strings.Contains(stderr.String(), word) {
			t.Errorf("no %q in\n%s", word, &stderr)
		}
	}
}
