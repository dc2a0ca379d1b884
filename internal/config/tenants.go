package config

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxTenants bounds the tenants of a file.
const MaxTenants = 1024

// TenantEntry is one entry of the tenants file, as it is written there. Zero
// means the server's default.
type TenantEntry struct {
	Name             string `mapstructure:"name"`
	SecretFile       string `mapstructure:"secret_file"` // relative to the tenants file
	SecretEnv        string `mapstructure:"secret_env"`  // or the variable that holds it
	Space            string `mapstructure:"space"`       // own, main, or a name that several share
	MemoryLimit      Size   `mapstructure:"memory_limit"`
	ReadOnly         bool   `mapstructure:"read_only"`
	Prefix           string `mapstructure:"prefix"`
	SendOnly         bool   `mapstructure:"send_only"`
	Admin            bool   `mapstructure:"admin"`
	MaxSessions      int    `mapstructure:"max_sessions"`
	MaxRequests      int    `mapstructure:"max_requests"`
	MaxInflightBytes Size   `mapstructure:"max_inflight_bytes"`
}

// A Tenant is an entry with its secret, which no format verb shows.
type Tenant struct {
	TenantEntry
	secret hidden
}

// Secret is the tenant's secret.
func (t *Tenant) Secret() []byte { return []byte(t.secret.show()) }

// Tenants reads the file that tenants_file names, and the secrets that it leads
// to; nil if it names none. Relative names of secret files are looked up beside
// the tenants file. env is the environment, as in Options. Every fault is
// reported, with its line; none shows a secret.
func (c *Config) Tenants(env []string) ([]Tenant, error) {
	if c.TenantsFile == "" {
		return nil, nil
	}
	data, err := readFile(c.TenantsFile)
	if err == nil {
		err = checkText(data)
	}
	if st, serr := os.Stat(c.TenantsFile); err == nil && serr == nil && st.Mode().Perm()&0o022 != 0 {
		err = fmt.Errorf("has mode %04o: others may change who has which rights; make it 0644 or less", st.Mode().Perm())
	}
	if err != nil {
		return nil, Faults{{Source: c.TenantsFile, Key: "tenants_file", Reason: err.Error()}}
	}
	r := &tenantReader{path: c.TenantsFile, env: env}
	r.file(data)
	if len(r.faults) > 0 {
		return nil, r.faults
	}
	return r.out, nil
}

type tenantReader struct {
	path   string
	env    []string
	out    []Tenant
	faults Faults
}

func (r *tenantReader) fault(line int, key, format string, args ...any) {
	src := r.path
	if line > 0 {
		src = fmt.Sprintf("%s:%d", src, line)
	}
	if key == "" {
		key = "tenants_file"
	}
	r.faults = append(r.faults, Fault{src, key, fmt.Sprintf(format, args...)})
}

// file reads the document: one mapping with the key tenants, whose value is a list.
func (r *tenantReader) file(data []byte) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case err == io.EOF:
		r.fault(0, "", "is empty: want \"tenants:\" and a list, or \"tenants: []\"")
		return
	case err != nil:
		r.fault(0, "", "is no YAML: %s", oneLine(err))
		return
	}
	if err := dec.Decode(new(yaml.Node)); err != io.EOF {
		r.fault(0, "", "has more than one YAML document; one is read")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode || len(root.Content) != 2 || root.Content[0].Value != "tenants" || root.Content[1].Kind != yaml.SequenceNode {
		r.fault(root.Line, "", "want one key, \"tenants:\", with a list of tenants")
		return
	}
	list := root.Content[1]
	if reason := plainNode(list); reason != "" {
		r.fault(list.Line, "", "%s", reason)
		return
	}
	if n := len(list.Content); n > MaxTenants {
		r.fault(list.Line, "", "lists %d tenants, at most %d are allowed", n, MaxTenants)
		return
	}
	lines := map[string]int{}
	for _, entry := range list.Content {
		t, ok := r.entry(entry)
		if !ok {
			continue
		}
		if first := lines[t.Name]; first > 0 {
			r.fault(entry.Line, "name", "%s stands twice: first in line %d", quote(t.Name), first)
		}
		lines[t.Name] = entry.Line
		r.out = append(r.out, t)
	}
}

// plainNode refuses the forms of YAML that are not used here.
func plainNode(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return "anchors and aliases are not used here"
	case n.Style&yaml.TaggedStyle != 0:
		return "tags are not used here"
	}
	return ""
}

// tenantKeys are the keys of an entry.
func tenantKeys() []Key { return keysOf(reflect.TypeFor[TenantEntry](), "", "", nil) }

// entry reads one tenant. It returns false if the entry is faulty, which has been noted.
func (r *tenantReader) entry(node *yaml.Node) (t Tenant, ok bool) {
	before := len(r.faults)
	if reason := plainNode(node); reason != "" || node.Kind != yaml.MappingNode {
		if reason == "" {
			reason = "want the keys of a tenant, as in \"- name: blue\""
		}
		r.fault(node.Line, "", "%s", reason)
		return t, false
	}
	keys := tenantKeys()
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, val := node.Content[i], node.Content[i+1]
		at := slices.Index(names, key.Value)
		reason := checkValue(val)
		switch {
		case key.Kind != yaml.ScalarNode || at < 0:
			r.fault(key.Line, "", "unknown key %s of a tenant%s", quote(key.Value), didYouMean(key.Value, names))
			continue
		case seen[key.Value] > 0:
			r.fault(key.Line, key.Value, "stands twice: first in line %d", seen[key.Value])
			continue
		case reason != "":
			r.fault(val.Line, key.Value, "%s", reason)
			continue
		}
		seen[key.Value] = key.Line
		var raw any
		err := val.Decode(&raw)
		var v any
		if err == nil {
			v, err = parse(keys[at].Kind, raw)
		}
		if err != nil {
			r.fault(val.Line, key.Value, "%s", oneLine(err))
			continue
		}
		reflect.ValueOf(&t.TenantEntry).Elem().FieldByIndex(keys[at].field).Set(reflect.ValueOf(v))
	}
	r.check(node.Line, &t)
	return t, len(r.faults) == before
}

// check looks at an entry as a whole and fetches its secret.
func (r *tenantReader) check(line int, t *Tenant) {
	k := &checker{}
	k.name("name", t.Name)
	switch {
	case t.Name == "main" || t.Name == "own":
		k.fault("name", "%q is the name of a space", t.Name)
	case t.Space != "" && t.Space != "own" && t.Space != "main":
		k.name("space", t.Space)
	}
	if t.MaxSessions < 0 || t.MaxRequests < 0 {
		k.fault("max_sessions", "limits are not negative; 0 is the default")
	}
	for _, f := range k.faults {
		r.fault(line, f.Key, "%s", f.Reason)
	}
	secret, key, err := r.secret(t)
	if err != nil {
		r.fault(line, key, "%s: %s", t.Name, err)
		return
	}
	t.secret = hide(string(secret))
}

// secret returns what secret_file or secret_env lead to. key is the one at
// fault.
func (r *tenantReader) secret(t *Tenant) (secret []byte, key string, err error) {
	switch {
	case t.SecretFile != "" && t.SecretEnv != "":
		return nil, "secret_env", fmt.Errorf("secret_file is said too: take one of them away")
	case t.SecretFile != "":
		path := t.SecretFile
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(r.path), path)
		}
		secret, err = ReadSecret(path)
		return secret, "secret_file", err
	case t.SecretEnv == "":
		return nil, "secret_file", fmt.Errorf("a tenant needs secret_file or secret_env")
	case strings.HasPrefix(t.SecretEnv, EnvPrefix):
		return nil, "secret_env", fmt.Errorf("names that begin with %s are those of settings", EnvPrefix)
	}
	text := lookup(r.env, t.SecretEnv)
	if text == "" {
		return nil, "secret_env", fmt.Errorf("the variable %s is not set", quote(t.SecretEnv))
	}
	secret, err = checkSecret([]byte(text))
	return secret, "secret_env", err
}
