package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "0B": 0, "1B": 1, "1KiB": 1024, "64MiB": 64 << 20, "64 MiB": 64 << 20, "64MB": 64e6, "3GB": 3e9, "2TiB": 2 << 40, "1TB": 1e12,
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
		if again, err := ParseSize(got.String()); err != nil || again != got {
			t.Errorf("%d is written %q, which is read as %d, %v", got, got, again, err)
		}
	}
	for _, text := range []string{"", "B", "1", "-1B", "+1B", "1.5MiB", "1e3B", "1mib", "1 M", "0x1B", "1_0B", "1MiBB", " 1B", "1B ", "1  B", "\u0661B"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
}

func TestNearest(t *testing.T) {
	names := keyNames()
	for name, want := range map[string]string{
		"listn": "listen", "lsiten": "listen", "Data_Dir": "data_dir", "data-dir": "data_dir", "datadir": "data_dir",
		"memorylimit": "memory_limit", "server": "servers", "qqqqqqqqqq": "", strings.Repeat("a", 1000): "",
	} {
		if got := Nearest(name, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := strings.Repeat("s", MinSecret)
	for _, tc := range []struct{ path, want string }{
		{"", ""},
		{write("good", good+"\n", 0o600), ""},
		{write("ro", good, 0o400), ""},
		{write("group", good, 0o640), "mode 0640"},
		{write("world", good, 0o604), "mode 0604"},
		{write("short", good[1:]+"\n", 0o600), "15 bytes, want 16 to 1024"},
		{write("empty", "", 0o600), "0 bytes"},
		{write("long", strings.Repeat("s", MaxSecret+1), 0o600), "want 16 to 1024"},
		{dir, "no regular file"},
		{filepath.Join(dir, "none"), "no such file"},
	} {
		c := Default()
		c.SecretFile = tc.path
		secret, err := c.Secret()
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", tc.path, err)
		case tc.want == "" && tc.path != "" && string(secret) != good:
			t.Errorf("%s: secret %q", tc.path, secret)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", tc.path, err, tc.want)
		case err != nil && strings.Contains(err.Error(), "sss"):
			t.Errorf("%s: the message shows the secret: %v", tc.path, err)
		}
	}
}

// FuzzConfig feeds arbitrary files and values of a variable. Nothing panics;
// an accepted configuration is valid and can be written and read again.
func FuzzConfig(f *testing.F) {
	shipped, err := os.ReadFile("../../config.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(shipped, "64MiB")
	for _, s := range []string{"", "shards: 3", "servers: [a:1]", "sync: off", "listen: *a", "? [a]\n: b", "a: &b [*b]", "lease: 2s\n---\n", "gossip:\n  bind: a:1\n  join: [b:1]\nnode_id: a\ninsecure: true", "tls:\n  cert: [", "<<: *x", "shards: 0o17", "pprof: !!bool yes"} {
		f.Add([]byte(s), "1")
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, value string) {
		if strings.ContainsRune(value, 0) {
			return // no variable can hold it
		}
		path := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Load(Options{File: path, Env: []string{"RDMAKV_MEMORY_LIMIT=" + value}})
		if err != nil {
			if len(err.Error()) == 0 || bytes.ContainsAny([]byte(err.Error()), "\x1b\x00\a") {
				t.Fatalf("message %q", err.Error())
			}
			return
		}
		if err := l.Validate(); err != nil {
			t.Fatalf("loaded, but not valid: %v", err)
		}
		var out bytes.Buffer
		if err := l.Print(&out, false); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := Load(Options{File: path})
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.Bytes())
		}
		var out2 bytes.Buffer
		if err := again.Print(&out2, false); err != nil {
			t.Fatal(err)
		}
		for _, k := range Keys() {
			if k.value(&l.Config) != k.value(&again.Config) {
				t.Fatalf("%s was %s and is read back as %s", k.Name, k.value(&l.Config), k.value(&again.Config))
			}
		}
	})
}
