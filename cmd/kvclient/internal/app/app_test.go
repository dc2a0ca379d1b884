package app

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/config"
)

// TestEveryKeyArrives sets each of the client's keys and demands that the
// library's configuration differs.
func TestEveryKeyArrives(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := clientConfigWith(t)
	if base.CacheEntries != client.DefaultCacheEntries {
		t.Errorf("kvclient remembers %d places by default, the library %d", base.CacheEntries, client.DefaultCacheEntries)
	}
	for _, env := range []string{"RDMAKV_DEVICE=x", "RDMAKV_SECRET_FILE=" + secret, "RDMAKV_SERVERS=a:1,b:2", "RDMAKV_TIMEOUT=7s",
		"RDMAKV_CACHE_ENTRIES=0", "RDMAKV_CACHE_ENTRIES=5", "RDMAKV_TENANT=red", "RDMAKV_WAIT_MODE=event", "RDMAKV_EXPERT_SPIN=30us", "RDMAKV_EXPERT_SPIN=0s"} {
		if reflect.DeepEqual(clientConfigWith(t, env), base) {
			t.Errorf("%s does not reach the library", env)
		}
	}
	for _, k := range config.Keys() {
		if k.Scope == config.ForClient && !strings.Contains("servers timeout cache_entries tenant", k.Name) {
			t.Errorf("the test has no value for %s", k.Name)
		}
		if least, most := k.Bounds(); k.Scope == config.ForClient && least != nil {
			// The library takes what the configuration does.
			clientConfigWith(t, fmt.Sprintf("%s=%v", k.Env, least))
			clientConfigWith(t, fmt.Sprintf("%s=%v", k.Env, most))
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
	a := &App{Config: l, Stderr: new(bytes.Buffer)}
	cfg, err := a.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	cfg.Fabrics, cfg.Logger = nil, nil // made anew each time
	return cfg
}

// TestShow: every key is shown so that it is harmless and differs from
// every other.
func TestShow(t *testing.T) {
	a := &App{}
	seen := map[string]string{}
	for _, key := range []string{"a", " a", "a ", "a b", `"a"`, `a"`, "é", "\x00", "\\x00", `"\x00"`, "\n", "\x1b[31m", "\xff", "\u202e", "\ufffd"} {
		s := a.Show([]byte(key))
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
	p := NewProgress(&out, "imported", 1000, nil)
	p.Keys.Add(1_234_567)
	p.Bytes.Add(500)
	for columns := range 200 {
		if got := utf8.RuneCountInString(p.bar(columns)); got > max(columns-1, 0) {
			t.Errorf("%d columns: the bar has %d", columns, got)
		}
	}
	if !strings.Contains(p.bar(200), " 50 %") || !strings.Contains(p.line(), "1,234,567 keys") {
		t.Errorf("bar %q", p.bar(200))
	}
	p.Finish()
	if strings.Contains(out.String(), "\x1b") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("plain output is %q", out.String())
	}
}
