package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/test/node"
)

// lines counts the lines of a message.
func lines(s string) int { return strings.Count(strings.TrimRight(s, "\n"), "\n") + 1 }

// checkRefused: one clear line that names the fault, the right exit code, no
// panic, nothing on standard output.
func checkRefused(t *testing.T, r result, code int, want ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	for _, w := range want {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("the message lacks %q:\n%s", w, r.stderr)
		}
	}
	if strings.Contains(r.stderr, "panic") || strings.Contains(r.stderr, "goroutine ") || lines(r.stderr) > 3 {
		t.Errorf("that is no clear message:\n%s", r.stderr)
	}
	if strings.Contains(r.stdout, "ready") {
		t.Errorf("standard output: %s", r.stdout)
	}
}

// badValues has for each kind of key what it must refuse.
var badValues = map[config.Kind][]string{
	config.KindNumber:   {"", "x", "-1", "1.5", "1e3", "0x10", "99999999999999999999", "1 ", "٣"},
	config.KindSwitch:   {"maybe", "1", "TRUE"},
	config.KindDuration: {"", "5", "5 s", "-1s", "1y", "1e30h", "999999h"},
	config.KindSize:     {"", "5", "-1MiB", "1.5MiB", "1mib", "1MiBx", "99999999TiB", "1MB"},
}

// badTexts has the same for each key that is a text or a list, or else takes
// what others of its kind refuse.
var badTexts = map[string][]string{
	"fabric":          {"", "tcp", "IWARP"},
	"log_level":       {"", "loud"},
	"log_format":      {"", "xml"},
	"sync":            {"", "sometimes", "Always"},
	"listen":          {"", "localhost", "localhost:x", "localhost:70000", ":::1", "a b:1", "127.0.0.1:-1"},
	"admin_listen":    {"localhost", "localhost:70000"},
	"data_dir":        {""},
	"servers":         {"", "localhost", "localhost:0", "a:1,,b:2"},
	"secret_file":     {"/nonexistent/secret", "/dev/null", "/"},
	"device":          {"no-such-device"},
	"verbs_connect":   {"", "udp", "CM"},
	"huge_pages":      {"", "always"},
	"mode":            {"", "Cache", "memory"},
	"lease":           {"", "5", "5 s", "-1s", "999999h", "never"},
	"wait_mode":       {"", "busy", "Poll"},
	"expert.spin":     {"", "20", "-1us", "2ms", "never"},
	"expert.cores":    {"x", "-1", "3-1", "0,0", "1024", "0;1"},
	"shm":             {"", "on", "User"},
	"shm_dir":         {strings.Repeat("d", 65)},
	"expert.prefault": {"", "true", "On"},
	"gid_index":       {"", "x", "-2", "1.5", "99999999999999999999"},

	"tls.cert":         {"/nonexistent/cert"},
	"tls.key":          {"/nonexistent/key"},
	"tls.ca":           {"/nonexistent/ca"},
	"tenants_file":     {"/nonexistent/tenants", "/"},
	"memory_keep":      {"", "5", "0s", "25h", "1m"},
	"rkey_max_age":     {"", "5", "0s", "1s", "never"},
	"node_id":          {"Node", "a/b", "-a", "a b"},
	"advertise":        {"0.0.0.0", "a:1", "a b"},
	"gossip.bind":      {"localhost", "localhost:x", "a b:1"},
	"gossip.advertise": {"0.0.0.0:1", "localhost"},
	"gossip.join":      {"localhost", "localhost:0", "a:1,,b:2"},
	"gossip.key_file":  {"/nonexistent/key", "/"},
	"gossip.profile":   {"", "lam", "LAN"},
	"gossip.allow":     {"10.0.0.1", "10.0.0.1/8", "all"},
	"cluster.name":     {"Red", "my cluster"},
	"tenant":           {"Blue", "a/b"},
}

// TestEveryKeyRefusesNonsense gives every flag and every variable of both
// programs values that it must refuse, and demands that the error names it.
func TestEveryKeyRefusesNonsense(t *testing.T) {
	t.Parallel()
	for _, k := range config.Keys() {
		values := badValues[k.Kind]
		if own, ok := badTexts[k.Name]; ok {
			values = own
		}
		if len(values) == 0 {
			t.Errorf("there is no bad value for %s", k.Name)
		}
		prog, args := "kvserver", []string{"--data-dir", filepath.Join(t.TempDir(), "d"), "--listen", "127.0.0.1:0", "--admin-listen", ""}
		if k.Scope == config.ForClient {
			prog, args = "kvclient", []string{"ping"}
		}
		for _, v := range values {
			code := 2
			if k.Name == "device" {
				code = 1 // found out when it is opened
			}
			t.Run(fmt.Sprintf("%s=%q", k.Name, v), func(t *testing.T) {
				flag := append(append([]string{}, args...), "--"+k.Flag+"="+v)
				checkNamed(t, runProgram(t, nil, nil, prog, flag...), code, k.Name, "--"+k.Flag)
				if prog == "kvserver" && (k.Name == "listen" || k.Name == "data_dir" || k.Name == "admin_listen") {
					return // the flags above stand over the variable
				}
				checkNamed(t, runProgram(t, nil, []string{k.Env + "=" + v}, prog, args...), code, k.Name, k.Env)
			})
		}
	}
}

// checkNamed is checkRefused, and the message names the key or its source.
func checkNamed(t *testing.T, r result, code int, key, source string) {
	t.Helper()
	if strings.Contains(r.stderr, key) {
		source = key
	}
	checkRefused(t, r, code, source)
}

// TestBadCommandLines: wrong flags, arguments and commands.
func TestBadCommandLines(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line string
		want string
	}{
		{"kvserver --no-such-flag", "no-such-flag"},
		{"kvserver --data-dir", "data-dir"},
		{"kvserver serve now", "now"},
		{"kvserver destroy", "destroy"},
		{"kvserver --config /nonexistent.yaml", "/nonexistent.yaml: no such file"},
		{"kvserver --config /", "is a directory"},
		{"kvserver --config /dev/zero", "no regular file"},
		{"kvserver inspect --shards=x", "shards"},
		{"kvclient frobnicate", "frobnicate"},
		{"kvclient get", "KEY is missing"},
		{"kvclient get a b --offset 1", "--offset"},
		{"kvclient get ", "KEY is empty"},
		{"kvclient get --hex xyz", "hexadecimal"},
		{"kvclient get --hex abc", "hexadecimal"},
		{"kvclient get k --offset -1", "--offset"},
		{"kvclient get k -o xml", "text or json"},
		{"kvclient put", "KEY is missing"},
		{"kvclient put k v --file f", "--file"},
		{"kvclient put --hex 00 zz", "hexadecimal"},
		{"kvclient scan --limit -1", "--limit"},
		{"kvclient scan --limit x", "--limit"},
		{"kvclient scan this what", "what"},
		{"kvclient import --format csv f", "jsonl"},
		{"kvclient import --workers 0 f", "--workers"},
		{"kvclient export --format csv f", "jsonl"},
		{"kvclient ping -c 0", "--count"},
		{"kvclient bench --keys 0", "--keys"},
		{"kvclient bench --keys -5", "--keys"},
		{"kvclient bench --value-size 999999999", "--value-size"},
		{"kvclient bench --read-share 1.5", "--read-share"},
		{"kvclient bench --read-share NaN", "--read-share"},
		{"kvclient bench --clients 0", "--clients"},
		{"kvclient bench --duration 0s", "--duration"},
		{"kvclient completion klingon", "klingon"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			args := strings.Split(tc.line, " ")
			checkRefused(t, runProgram(t, nil, nil, args[0], args[1:]...), 2, tc.want)
		})
	}
	t.Run("key too long", func(t *testing.T) {
		checkRefused(t, runProgram(t, nil, nil, "kvclient", "get", strings.Repeat("k", 4097)), 2, "4097", "4096")
	})
}

// TestBadSurroundings: what is wrong outside the command line.
func TestBadSurroundings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	foreign := filepath.Join(dir, "foreign")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(foreign, "letters.txt"), []byte("dear diary"), 0o600); err != nil {
		t.Fatal(err)
	}
	inUse := filepath.Join(dir, "in use")
	busy := startNode(t, inUse)
	taken := busy.Data

	server := func(args ...string) result {
		return runProgram(t, nil, nil, "kvserver", serverArgs(filepath.Join(dir, "fresh"), args...)...)
	}
	t.Run("port in use", func(t *testing.T) { checkRefused(t, server("--listen", taken), 1, taken, "in use") })
	t.Run("admin port in use", func(t *testing.T) {
		checkRefused(t, server("--admin-listen", busy.Admin), 1, busy.Admin, "in use")
	})
	t.Run("address of another machine", func(t *testing.T) { checkRefused(t, server("--listen", "192.0.2.1:7400"), 1, "192.0.2.1") })
	t.Run("host that is not", func(t *testing.T) {
		checkRefused(t, server("--listen", "no.such.host.invalid:7400"), 1, "no.such.host.invalid")
	})
	t.Run("directory is a file", func(t *testing.T) { checkRefused(t, server("--data-dir", file), 1, file, "directory") })
	t.Run("directory below a file", func(t *testing.T) {
		checkRefused(t, server("--data-dir", filepath.Join(file, "x")), 1, "directory")
	})
	t.Run("directory of somebody else", func(t *testing.T) {
		checkRefused(t, server("--data-dir", foreign), 1, foreign, "no store")
		if data, err := os.ReadFile(filepath.Join(foreign, "letters.txt")); err != nil || string(data) != "dear diary" {
			t.Errorf("the directory was touched: %q, %v", data, err)
		}
		if entries, err := os.ReadDir(foreign); err != nil || len(entries) != 1 {
			t.Errorf("the directory was touched: %v, %v", entries, err)
		}
	})
	t.Run("directory in use", func(t *testing.T) { checkRefused(t, server("--data-dir", inUse), 1, inUse, "in use") })
	t.Run("directory below /proc", func(t *testing.T) { checkRefused(t, server("--data-dir", "/proc/rdmakv"), 1, "/proc/rdmakv") })
	t.Run("inspect of nothing", func(t *testing.T) {
		r := runProgram(t, nil, nil, "kvserver", "inspect", "--data-dir", filepath.Join(dir, "nothing"))
		checkRefused(t, r, 1, "nothing")
	})
	t.Run("inspect of a running store", func(t *testing.T) {
		checkRefused(t, runProgram(t, nil, nil, "kvserver", "inspect", "--data-dir", inUse), 1, "in use")
	})
	t.Run("no server", func(t *testing.T) {
		r := runProgram(t, nil, nil, "kvclient", "--server", freeAddr(t), "--timeout", "1s", "get", "k")
		checkRefused(t, r, 1, "no server at", "connection refused")
	})
	t.Run("a server that says nothing", func(t *testing.T) {
		onlyIWARP(t)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		mute := ln.Addr().String()
		r := runProgram(t, nil, nil, "kvclient", "--server", mute, "--timeout", "1s", "get", "k")
		checkRefused(t, r, 1, mute)
	})
	t.Run("unknown variable", func(t *testing.T) {
		r := runProgram(t, nil, []string{"RDMAKV_SERVRS=x"}, "kvclient", "ping")
		checkRefused(t, r, 2, "RDMAKV_SERVRS", "RDMAKV_SERVERS")
	})
}

// TestStoreOfAnotherKind: a store that a newer version wrote, and one with
// another number of shards. Both are refused before anything is changed.
func TestStoreOfAnotherKind(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	if code, err := startNode(t, dir, "--shards", "8").Stop(20 * time.Second); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	r := runProgram(t, nil, nil, "kvserver", serverArgs(dir, "--shards", "16")...)
	checkRefused(t, r, 1, dir, "8", "16", "shards")

	identity := filepath.Join(dir, "STORE")
	data, err := os.ReadFile(identity)
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.NewReplacer("format 4\n", "format 99\n", "reader 4\n", "reader 99\n").Replace(string(data))
	if newer == string(data) {
		t.Fatalf("the identity has no format version: %q", data)
	}
	if err := os.WriteFile(identity, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	checkRefused(t, runProgram(t, nil, nil, "kvserver", serverArgs(dir, "--shards", "8")...), 1, dir, "99", "too new")
	checkRefused(t, runProgram(t, nil, nil, "kvserver", "inspect", "--data-dir", dir), 1, "99")
	if after, err := os.ReadFile(identity); err != nil || string(after) != newer {
		t.Errorf("the refused store was changed: %q, %v", after, err)
	}
}

var largestFlag = flag.Int("largest-value", 64<<20, "bytes of the largest value of TestKeyAndValueSizes; in an emulated guest 64 MiB take half a minute")

// TestKeyAndValueSizes: the least and the most that is allowed, and values that need parts.
func TestKeyAndValueSizes(t *testing.T) {
	n := startNode(t, t.TempDir(), "--memory-limit", "1GiB")
	kv := func(stdin string, args ...string) result {
		return runProgram(t, strings.NewReader(stdin), nil, "kvclient", append([]string{"--server", n.Data, "--timeout", "100s"}, args...)...)
	}
	for _, key := range []string{"k", strings.Repeat("k", 4096), "\xff\xfe", "a\nb", "\x1b[31mred", "-x", "--", " "} {
		if r := kv("value", "put", "--", key); r.code != 0 {
			t.Errorf("put %.20q: %+v", key, r)
		}
		if r := kv("", "get", "--", key); r.code != 0 || r.stdout != "value" {
			t.Errorf("get %.20q: %+v", key, r)
		}
		if r := kv("", "delete", "--", key); r.code != 0 {
			t.Errorf("delete %.20q: %+v", key, r)
		}
		if r := kv("", "get", "--", key); r.code != 3 || r.stdout != "" || strings.Contains(r.stderr, "\x1b") {
			t.Errorf("get of absent %.20q: %+v", key, r)
		}
	}
	const most = 64 << 20
	for _, size := range []int{0, 1, 7, 8, 16<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, *largestFlag} {
		value := string(bytes.Repeat([]byte("0123456789abcde\n"), size/16+1)[:size])
		if r := kv(value, "put", "sized"); r.code != 0 {
			t.Errorf("put of %d bytes: %d %s", size, r.code, r.stderr)
			continue
		}
		if r := kv("", "get", "sized"); r.code != 0 || r.stdout != value {
			t.Errorf("get of %d bytes: code %d, %d bytes, %s", size, r.code, len(r.stdout), r.stderr)
		}
	}
	// One more than an item can be goes in parts; the most of all is TestGibibyte's.
	large := strings.Repeat("0123456789abcde\n", most/16) + "x"
	if *largestFlag < most {
		large = ""
	}
	if r := kv(large, "put", "larger"); r.code != 0 {
		t.Errorf("put of %d bytes: %d %s", len(large), r.code, r.stderr)
	}
	if r := kv("", "get", "larger"); r.code != 0 || r.stdout != large {
		t.Errorf("get of %d bytes: code %d, %d bytes, %s", len(large), r.code, len(r.stdout), r.stderr)
	}
	if r := kv("", "get", "sized", "--length", "5"); r.stdout != "01234" {
		t.Errorf("the refused put changed the value: %+v", r)
	}
}

// TestCorruptDirectory damages the files of a store in every way and demands a
// clear refusal, or a start with right answers; never a wrong one.
func TestCorruptDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	n := startNode(t, dir)
	c := dial(t, n)
	for i := range corruptKeys {
		key := corruptKey(i)
		if err := c.Put(t.Context(), key, appendRecord(nil, key, 1, 300)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if code, err := n.Stop(20 * time.Second); err != nil || code != 0 {
		t.Fatal(code, err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		for _, damage := range []string{"cut", "flip", "empty", "gone"} {
			t.Run(name+" "+damage, func(t *testing.T) { damaged(t, dir, name, damage) })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

const corruptKeys = 50

func corruptKey(i int) []byte { return fmt.Appendf(nil, "key %d", i) }

// damaged copies the store, damages one file, checks the copy with inspect and
// starts a node on it.
func damaged(t *testing.T, dir, name, damage string) {
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(copied, name)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) == 0 && damage != "gone" {
		return // nothing to damage
	}
	switch damage {
	case "cut":
		data = data[:len(data)/2]
	case "flip":
		data[len(data)/2] ^= 0x40
	case "empty":
		data = nil
	}
	if damage == "gone" {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	found := runProgram(t, nil, nil, "kvserver", "inspect", "--data-dir", copied)
	if strings.Contains(found.stderr, "goroutine ") || found.code != 0 && found.stderr == "" || found.code > 1 {
		t.Errorf("kvserver inspect: exit code %d\n%s", found.code, found.stderr)
	}

	n, err := node.Start(t.Context(), node.Options{Bin: filepath.Join(bin, "kvserver"), Args: serverArgs(copied)})
	var ended *node.ExitError
	if errors.As(err, &ended) {
		if ended.Code != 1 || strings.Contains(ended.Stderr, "goroutine ") {
			t.Errorf("kvserver: %v", err)
		}
		t.Logf("inspect: exit %d; kvserver refuses: %s", found.code, lastLine(ended.Stderr))
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Kill() }()
	c := dial(t, n)
	right, refused := 0, 0
	for i := range corruptKeys {
		value, err := c.Get(t.Context(), corruptKey(i))
		if errors.Is(err, client.ErrCorrupt) {
			refused++
			continue
		}
		if err != nil {
			t.Errorf("key %d: %v: it was acknowledged, and the damage is not reported", i, err)
			break
		}
		if _, err := parseRecord(corruptKey(i), value); err != nil {
			t.Error(err)
			break
		}
		right++
	}
	t.Logf("inspect: exit %d; kvserver serves: %d values right, %d refused as corrupt", found.code, right, refused)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
