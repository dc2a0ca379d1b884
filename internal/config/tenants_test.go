package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tenantsOf reads a tenants file beside which a secret file lies.
func tenantsOf(t testing.TB, text string, env ...string) ([]Tenant, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"tenants.yaml": text, "blue.secret": "0123456789abcdef\n", "short": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "open"), []byte("0123456789abcdef"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.TenantsFile = filepath.Join(dir, "tenants.yaml")
	return c.Tenants(env)
}

func TestTenants(t *testing.T) {
	list, err := tenantsOf(t, `
tenants:
  - name: blue
    secret_file: blue.secret
    space: own
    memory_limit: 128MiB
    admin: true
    max_sessions: 7
  - {name: red-1.x, secret_env: RED, space: shared, read_only: true, max_inflight_bytes: 1MiB, max_requests: 9}
  - name: green
    secret_env: GREEN
    prefix: "green/"
    send_only: true
`, "RED=red red red red red", "GREEN=green green green")
	if err != nil {
		t.Fatal(err)
	}
	want := []TenantEntry{
		{Name: "blue", SecretFile: "blue.secret", Space: "own", MemoryLimit: 128 << 20, Admin: true, MaxSessions: 7},
		{Name: "red-1.x", SecretEnv: "RED", Space: "shared", ReadOnly: true, MaxInflightBytes: 1 << 20, MaxRequests: 9},
		{Name: "green", SecretEnv: "GREEN", Prefix: "green/", SendOnly: true},
	}
	secrets := []string{"0123456789abcdef", "red red red red red", "green green green"}
	for i := range want {
		if len(list) != len(want) || list[i].TenantEntry != want[i] || string(list[i].Secret()) != secrets[i] {
			t.Errorf("tenant %d is %+v", i, list)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown := fmt.Sprintf(verb, any(list)) + fmt.Sprintf(verb, any(&list[1]))
		for _, s := range secrets {
			if strings.Contains(shown, s) {
				t.Errorf("a secret is shown: %s", shown)
			}
		}
	}
	if list, err := tenantsOf(t, "tenants: []\n"); err != nil || len(list) != 0 {
		t.Errorf("none: %v, %v", list, err)
	}
	c := Default()
	if list, err := c.Tenants(nil); list != nil || err != nil {
		t.Errorf("no file: %v, %v", list, err)
	}
}

func TestBadTenants(t *testing.T) {
	entry := func(lines ...string) string {
		return "tenants:\n  - " + strings.Join(append([]string{"name: blue", "secret_file: blue.secret"}, lines...), "\n    ") + "\n"
	}
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"empty", "", []string{"tenants_file", "is empty"}},
		{"no list", "tenants: blue", []string{"tenants.yaml:1", "list of tenants"}},
		{"another key", "tenants: []\nmore: 1", []string{"want one key"}},
		{"a list alone", "- name: a", []string{"want one key"}},
		{"broken", "tenants: [", []string{"no YAML"}},
		{"two documents", "tenants: []\n---\ntenants: []", []string{"more than one"}},
		{"text for a tenant", "tenants: [blue]", []string{"want the keys of a tenant"}},
		{"an anchor", "tenants:\n  - &a {name: b}", []string{"anchors"}},
		{"unknown key", entry("admn: true"), []string{"tenants.yaml:4", `"admn"`, `"admin"`}},
		{"secret in the file", entry("secret: hunter2hunter2hunter2"), []string{`unknown key "secret"`, `secret_file, secret_env`}},
		{"key twice", entry("admin: true", "admin: false"), []string{"tenants.yaml:5: admin", "twice"}},
		{"null", entry("prefix:"), []string{"prefix", "no value"}},
		{"wrong type", entry("admin: 1"), []string{"tenants.yaml:4: admin", "true or false"}},
		{"size without unit", entry("memory_limit: 1000000"), []string{"memory_limit", "MiB"}},
		{"negative limit", entry("max_sessions: -1"), []string{"max_sessions", "negative"}},
		{"name", "tenants:\n  - {name: Blue, secret_file: blue.secret}", []string{`"Blue" is no name`}},
		{"no name", "tenants:\n  - {secret_file: blue.secret}", []string{"name", "is no name"}},
		{"name of a space", "tenants:\n  - {name: main, secret_file: blue.secret}", []string{"name of a space"}},
		{"space", entry("space: a/b"), []string{"space", "no name"}},
		{"name twice", entry() + "  - {name: blue, secret_file: blue.secret}\n", []string{"tenants.yaml:4: name", "twice", "line 2"}},
		{"no secret", "tenants:\n  - {name: blue}", []string{"secret_file", "needs secret_file or secret_env"}},
		{"two secrets", entry("secret_env: BLUE"), []string{"secret_env", "take one of them away"}},
		{"no such file", "tenants:\n  - {name: blue, secret_file: nowhere}", []string{"secret_file", "no such file"}},
		{"open file", "tenants:\n  - {name: blue, secret_file: open}", []string{"mode 0644"}},
		{"short secret", "tenants:\n  - {name: blue, secret_file: short}", []string{"1 bytes, want 16"}},
		{"variable not set", "tenants:\n  - {name: blue, secret_env: NOWHERE}", []string{`"NOWHERE" is not set`}},
		{"variable of ours", "tenants:\n  - {name: blue, secret_env: RDMAKV_BLUE}", []string{"those of settings"}},
		{"many", "tenants: [" + strings.Repeat("a,", MaxTenants) + "a]", []string{"1025 tenants"}},
		{"everything at once", "tenants:\n  - {name: A, secret_env: X}\n  - {name: b, admin: 2}", []string{`"A" is no name`, `"X" is not set`, "admin", "needs secret_file"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tenantsOf(t, tc.text)
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the message lacks %s:\n%v", w, err)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the message shows a secret: %v", err)
			}
		})
	}
	c := Default()
	c.TenantsFile = filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.WriteFile(c.TenantsFile, []byte("tenants: []"), 0o600), os.Chmod(c.TenantsFile, 0o664)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tenants(nil); err == nil || !strings.Contains(err.Error(), "mode 0664") {
		t.Errorf("a file that others may change: %v", err)
	}
	c.TenantsFile = "/nonexistent/tenants"
	if _, err := c.Tenants(nil); err == nil || !strings.Contains(err.Error(), "tenants_file: no such file") {
		t.Errorf("no file: %v", err)
	}
}

// FuzzTenants: nothing panics, whatever the file holds.
func FuzzTenants(f *testing.F) {
	for _, s := range []string{"tenants:\n  - name: a\n    secret_env: A", "tenants: [{}]", "tenants: [[]]", "tenants: [{name: [1]}]", "tenants: [{? [a] : b}]", "tenants: &a [*a]"} {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "tenants.yaml")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c := Default()
		c.TenantsFile = path
		list, err := c.Tenants([]string{"A=0123456789abcdef"})
		for i := range list {
			if err != nil || len(list[i].Secret()) < MinSecret {
				t.Fatalf("%+v, %v", list[i], err)
			}
		}
	})
}
