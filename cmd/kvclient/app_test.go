package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/config"
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
			// Files of this machine are none of the test's business, and every
			// address but ours might be somebody's.
			if strings.ContainsAny(a, "/.:") || strings.HasPrefix(a, "--se") || strings.HasPrefix(a, "--t") || strings.HasPrefix(a, "--co") || a == "export" || strings.HasPrefix(a, "-f") || strings.HasPrefix(a, "--f") {
				return
			}
		}
		var stdout, stderr bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr,
			env: []string{"RDMAKV_SERVERS=127.0.0.1:1", "RDMAKV_TIMEOUT=20ms", "HOME=/nonexistent"}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		code := a.run(ctx, args)
		if code < exitOK || code > exitNotFound && code != exitInterrupted {
			t.Fatalf("%q: exit code %d", args, code)
		}
		if code != exitOK && stderr.Len() == 0 {
			t.Fatalf("%q: exit code %d without a word", args, code)
		}
		if strings.ContainsAny(stderr.String(), "\x1b\x00\a") && !strings.ContainsAny(line, "\x1b\x00\a") {
			t.Fatalf("%q: standard error %q", args, stderr.String())
		}
	})
}

// TestEveryKeyArrives sets each of the client's keys and wants to see the
// difference in what the library is given.
func TestEveryKeyArrives(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := clientConfigWith(t)
	for _, env := range []string{"RDMAKV_DEVICE=x", "RDMAKV_SECRET_FILE=" + secret, "RDMAKV_SERVERS=a:1,b:2", "RDMAKV_TIMEOUT=7s",
		"RDMAKV_CACHE_ENTRIES=0", "RDMAKV_CACHE_ENTRIES=5", "RDMAKV_MAX_INFLIGHT=3", "RDMAKV_TENANT=red", "RDMAKV_WAIT_MODE=event", "RDMAKV_SPIN=30us", "RDMAKV_SPIN=0s"} {
		if reflect.DeepEqual(clientConfigWith(t, env), base) {
			t.Errorf("%s does not reach the library", env)
		}
	}
	for _, k := range config.Keys() {
		if k.Scope == config.ForClient && !strings.Contains("servers timeout cache_entries max_inflight tenant", k.Name) {
			t.Errorf("the test has no value for %s", k.Name)
		}
	}
	if got := clientConfigWith(t, "RDMAKV_CACHE_ENTRIES=0").CacheEntries; got != -1 {
		t.Errorf("no cache became %d entries; the library takes 0 for its default", got)
	}
}

func clientConfigWith(t *testing.T, env ...string) client.Config {
	t.Helper()
	l, err := config.Load(config.Options{Scope: config.ForClient, Search: []string{}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	a := &app{cfg: l, stderr: new(bytes.Buffer)}
	cfg, err := a.clientConfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.Fabrics, cfg.Logger = nil, nil // made anew each time
	return cfg
}

// TestShow: every key is shown so that it is harmless and can be told from
// every other.
func TestShow(t *testing.T) {
	a := &app{}
	seen := map[string]string{}
	for _, key := range []string{"a", " a", "a ", "a b", `"a"`, `a"`, "é", "\x00", "\\x00", `"\x00"`, "\n", "\x1b[31m", "\xff", "\u202e", "\ufffd"} {
		s := a.show([]byte(key))
		if strings.ContainsAny(s, "\x00\n\x1b\u202e") || !utf8.ValidString(s) {
			t.Errorf("%q is shown as %q", key, s)
		}
		if other, twice := seen[s]; twice {
			t.Errorf("%q and %q are both shown as %s", key, other, s)
		}
		seen[s] = key
	}
}

// TestProgress: the display survives any width of terminal.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, "imported", 1000, nil)
	p.keys.Add(1_234_567)
	p.bytes.Add(500)
	for columns := range 200 {
		if got := utf8.RuneCountInString(p.bar(columns)); got > max(columns-1, 0) {
			t.Errorf("%d columns: the bar has %d", columns, got)
		}
	}
	if !strings.Contains(p.bar(200), " 50 %") || !strings.Contains(p.line(), "1,234,567 keys") {
		t.Errorf("bar %q", p.bar(200))
	}
	p.finish()
	if strings.Contains(out.String(), "\x1b") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("plain output is %q", out.String())
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 30: "5.0 GiB", 1 << 62: "4194304.0 TiB"} {
		if got := byteCount(n); got != want {
			t.Errorf("byteCount(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}

// TestFabrics: which fabrics the library is given, in which order.
func TestFabrics(t *testing.T) {
	for env, want := range map[string]string{
		"":                            "shm verbs iwarp",
		"RDMAKV_FABRIC=auto":          "shm verbs iwarp",
		"RDMAKV_FABRIC=shm":           "shm",
		"RDMAKV_SHM=off":              "verbs iwarp",
		"RDMAKV_FABRIC=verbs":         "verbs",
		"RDMAKV_FABRIC=iwarp":         "iwarp",
		"RDMAKV_REQUIRE_RDMA=true":    "verbs",
		"RDMAKV_VERBS_CONNECT=tcp":    "shm verbs iwarp",
		"RDMAKV_DEVICE=mlx5_0,iwarp0": "shm verbs iwarp",
	} {
		var got []string
		l, err := config.Load(config.Options{Scope: config.ForClient, Search: []string{}, Env: strings.Fields(env)})
		if err != nil {
			t.Fatal(err)
		}
		list, err := pickFabrics(l.Config, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			got = append(got, f.Name())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %v", env, got, want)
		}
	}
}
