package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load runs Load over a file's text ("" = no file), an environment and flags.
func load(t testing.TB, text string, env []string, args ...string) (*Loaded, error) {
	t.Helper()
	opt := Options{Scope: ForServer, Env: env, Search: []string{}}
	if text != "" {
		opt.File = filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(opt.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opt.Flags = pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(opt.Flags, ForServer|ForClient)
	if err := opt.Flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(opt)
}

func TestDefaultsAreValid(t *testing.T) {
	l, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(l.Config, Default()) {
		t.Errorf("loaded %+v, want the defaults %+v", l.Config, Default())
	}
}

// TestPrecedence gives one key in one more layer each time.
func TestPrecedence(t *testing.T) {
	file, env, arg := "lease: 3s\n", []string{"RDMAKV_LEASE=4s"}, "--lease=5s"
	for _, tc := range []struct {
		name   string
		file   string
		env    []string
		args   []string
		want   time.Duration
		source string
	}{
		{"default", "", nil, nil, 2 * time.Second, "default"},
		{"file", file, nil, nil, 3 * time.Second, "config.yaml:1"},
		{"variable over file", file, env, nil, 4 * time.Second, "RDMAKV_LEASE"},
		{"flag over variable", file, env, []string{arg}, 5 * time.Second, "--lease"},
		{"flag over default", "", nil, []string{arg}, 5 * time.Second, "--lease"},
		{"flag with the value of the default", file, env, []string{"--lease=2s"}, 2 * time.Second, "--lease"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := load(t, tc.file, tc.env, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			if time.Duration(l.Lease) != tc.want || !strings.HasSuffix(l.Sources["lease"], tc.source) {
				t.Errorf("lease = %v from %s, want %v from %s", l.Lease, l.Sources["lease"], tc.want, tc.source)
			}
		})
	}
}

// TestEveryKeyInEveryLayer sets each key once as a flag, once as a variable and
// once in a file, and demands that it arrives.
func TestEveryKeyInEveryLayer(t *testing.T) {
	other := map[string]string{
		"fabric": "iwarp", "device": "siw0,mlx5_0", "require_rdma": "true", "verbs_connect": "tcp", "gid_index": "3",
		"traffic_class": "106", "expert.service_level": "3", "expert.path_mtu": "1024", "secret_file": "/s", "log_level": "debug",
		"wait_mode": "poll", "expert.spin": "20us", "expert.cores": "0,2-3", "shm": "trusted", "shm_dir": "/r", "expert.prefault": "on",
		"log_format": "json", "data_dir": "/d", "listen": "[::1]:1", "admin_listen": "localhost:2", "pprof": "true",
		"sync": "off", "sync_interval": "1s", "shards": "7", "memory_limit": "2GiB", "expert.region_size": "64MiB",
		"expert.index_region_size": "8MiB", "mode": "cache", "watch_bytes": "0", "log_bytes": "64MiB",
		"huge_pages": "try", "memory_keep": "1m", "lease": "9s", "max_sessions": "5", "servers": "a:1",
		"timeout": "1m", "cache_entries": "0", "tenant": "blue",
		"tls.cert": "/c", "tls.key": "/k", "tls.ca": "/a", "expert.max_sessions_per_host": "7", "tenants_file": "/t", "rkey_max_age": "1h",
		"node_id": "n2", "advertise": "kv1.example,10.0.0.1", "insecure": "true",
		"gossip.bind": "10.0.0.9:7402", "gossip.advertise": "10.0.0.1:7402", "gossip.join": "10.0.0.2:7402,kv3:7402",
		"gossip.key_file": "/g", "gossip.profile": "fast", "gossip.allow": "10.0.0.0/8,fd00::/8", "cluster.name": "red", "cluster.move_rate": "5MiB", "cluster.hold_level": "true",
	}
	// Some keys need others beside them.
	tls := []string{"RDMAKV_TLS_CERT=/1", "RDMAKV_TLS_KEY=/2", "RDMAKV_TLS_CA=/3"}
	node := []string{"RDMAKV_NODE_ID=n1", "RDMAKV_GOSSIP_BIND=10.0.0.1:1", "RDMAKV_INSECURE=true"}
	beside := func(k Key) (env []string) {
		switch {
		case k.Section() == "tls":
			env = tls
		case k.Name == "memory_keep":
			env = []string{"RDMAKV_MODE=cache"}
		case k.Section() == "gossip", k.Section() == "cluster", k.Name == "node_id", k.Name == "advertise":
			env = node
		}
		return slices.DeleteFunc(slices.Clone(env), func(pair string) bool { return strings.HasPrefix(pair, k.Env+"=") })
	}
	for _, k := range Keys() {
		v, ok := other[k.Name]
		if !ok {
			t.Fatalf("the test has no value for %s", k.Name)
		}
		inFile := v
		if k.Kind == KindText || k.Kind == KindList || k.Kind == KindCPUs {
			inFile = `"` + v + `"`
		}
		if k.Kind == KindTerm {
			inFile = "'" + v + "'"
		}
		line := k.Name + ": " + inFile
		if section, key, ok := strings.Cut(k.Name, "."); ok {
			line = section + ":\n  " + key + ": " + inFile
		}
		env := beside(k)
		viaFlag, err1 := load(t, "", env, "--"+k.Flag+"="+v)
		viaEnv, err2 := load(t, "", append(slices.Clone(env), k.Env+"="+v))
		viaFile, err3 := load(t, line, env)
		for _, err := range []error{err1, err2, err3} {
			if err != nil {
				t.Errorf("%s: %v", k.Name, err)
			}
		}
		def := Default()
		if k.value(&viaFlag.Config) == k.value(&def) {
			t.Errorf("%s: the flag changed nothing", k.Name)
		}
		if !reflect.DeepEqual(viaFlag.Config, viaEnv.Config) || !reflect.DeepEqual(viaFlag.Config, viaFile.Config) {
			t.Errorf("%s: flag, variable and file differ:\n%+v\n%+v\n%+v", k.Name, viaFlag.Config, viaEnv.Config, viaFile.Config)
		}
	}
}

// TestBadInput is the table of everything that must be refused, and of the
// words that the message must have.
func TestBadInput(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for _, tc := range []struct {
		name string
		file string
		env  []string
		args []string
		want []string // each in the error
	}{
		{"unknown key", "listn: a:1", nil, nil, []string{"config.yaml:1", `unknown key "listn"`, `"listen"`}},
		{"unknown key, nothing near", "zzzzzzzzzzzzzzzz: 1", nil, nil, []string{"unknown key", "known: fabric"}},
		{"key in other case", "Listen: a:1", nil, nil, []string{`"Listen"`, `"listen"`}},
		{"key with dashes", "data-dir: a", nil, nil, []string{`"data-dir"`, `"data_dir"`}},
		{"key twice", "shards: 1\nshards: 2", nil, nil, []string{"config.yaml:2: shards", "twice", "line 1"}},
		{"key that shows escapes", "\"a\\e[31mb\": 1", nil, nil, []string{`"a\x1b[31mb"`}},
		{"section", "listen:\n  host: a", nil, nil, []string{"listen", "section"}},
		{"list in list", "servers: [[a]]", nil, nil, []string{"list in a list"}},
		{"no value", "listen:", nil, nil, []string{"listen", "no value"}},
		{"null", "listen: ~", nil, nil, []string{"no value"}},
		{"anchor", "listen: &a b:1\ndevice: *a", nil, nil, []string{"anchors"}},
		{"tag", "shards: !!str 12", nil, nil, []string{"tags"}},
		{"merge key", "<<: {shards: 1}", nil, nil, []string{"unknown key"}},
		{"two documents", "shards: 1\n---\nshards: 2", nil, nil, []string{"more than one"}},
		{"only text", "hello", nil, nil, []string{"key: value"}},
		{"a list", "- a\n- b", nil, nil, []string{"key: value"}},
		{"broken yaml", "a: [1,", nil, nil, []string{"no YAML"}},
		{"deep nesting", "listen: " + strings.Repeat("[", 100000), nil, nil, []string{"no YAML"}},
		{"tabs", "\tshards: 1", nil, nil, []string{"no YAML"}},
		{"utf-8 bom", "\xef\xbb\xbfshards: 1", nil, nil, []string{"byte order mark"}},
		{"utf-16", "\xff\xfes\x00", nil, nil, []string{"UTF-16"}},
		{"binary", "\x7fELF\x02\x01\x01\x00", nil, nil, []string{"NUL"}},
		{"latin-1", "data_dir: /d\xe9", nil, nil, []string{"UTF-8"}},
		{"huge", "# " + strings.Repeat("x", MaxFileSize), nil, nil, []string{"larger than 1MiB"}},

		{"duration without unit", "timeout: 5", nil, nil, []string{"timeout", "number 5", "with a unit"}},
		{"duration without unit as text", "timeout: '5'", nil, nil, []string{"with a unit"}},
		{"negative duration", "timeout: -5s", nil, nil, []string{"-5s", "out of range", "1ms to 1h0m0s"}},
		{"huge duration", "timeout: 1e30h", nil, nil, []string{"with a unit"}},
		{"float for a number", "shards: 1.9", nil, nil, []string{"shards", "whole number", "1.9"}},
		{"huge float for a number", "shards: 1e30", nil, nil, []string{"whole number"}},
		{"overflow", "shards: 99999999999999999999", nil, nil, []string{"whole number"}},
		{"negative", "shards: -1", nil, nil, []string{"-1 is out of range: 1 to 4096"}},
		{"zero", "shards: 0", nil, nil, []string{"out of range"}},
		{"one too many", "shards: 4097", nil, nil, []string{"4097", "4096"}},
		{"switch for a number", "shards: true", nil, nil, []string{"whole number, got true"}},
		{"number for a text", "data_dir: 12", nil, nil, []string{"want text", "quotes"}},
		{"switch for a text", "data_dir: true", nil, nil, []string{"want text"}},
		{"date for a text", "data_dir: 2026-01-01", nil, nil, []string{"want text"}},
		{"yes for a switch", "pprof: yes please", nil, nil, []string{"true or false"}},
		{"1 for a switch", "pprof: 1", nil, nil, []string{"true or false"}},
		{"number in a list", "servers: [1]", nil, nil, []string{"list of texts"}},
		{"size without unit", "memory_limit: 1000000000", nil, nil, []string{"memory_limit", "MiB"}},
		{"size with garbage", "memory_limit: 1GiBx", nil, nil, []string{`"1GiBx"`, "MiB"}},
		{"size in half units", "memory_limit: 1.5GiB", nil, nil, []string{"whole number"}},
		{"size in wrong case", "memory_limit: 1gib", nil, nil, []string{"GiB"}},
		{"negative size", "memory_limit: -1GiB", nil, nil, []string{"not a size"}},
		{"overflowing size", "memory_limit: 99999999TiB", nil, nil, []string{"too large"}},
		{"size that is no multiple", "expert: {region_size: 64MB}", nil, nil, []string{"62500KiB", "multiple of 1MiB"}},
		{"another mode", "mode: cached", nil, nil, []string{"mode", `did you mean "cache"`}},
		{"a ring too small", "watch_bytes: 512KiB", nil, nil, []string{"watch_bytes", "1MiB to 1GiB"}},
		{"a ring too large", "watch_bytes: 2GiB", nil, nil, []string{"watch_bytes", "1MiB to 1GiB"}},
		{"a log too small", "log_bytes: 4MiB", nil, nil, []string{"log_bytes", "8MiB to 64GiB"}},
		{"a log too large", "log_bytes: 65GiB", nil, nil, []string{"log_bytes", "8MiB to 64GiB"}},
		{"a log by bytes", "log_bytes: 64MB", nil, nil, []string{"log_bytes", "multiple of 1MiB"}},
		{"a ring by bytes", "watch_bytes: 3MB", nil, nil, []string{"watch_bytes", "multiple of 1MiB"}},
		{"regions larger than memory", "memory_limit: 16MiB\nexpert: {region_size: 15MiB}", nil, nil, []string{"memory_limit", "they need 17MiB", "expert.region_size"}},

		{"unknown sync", "sync: sometimes", nil, nil, []string{"sync", "always, interval, off"}},
		{"misspelt sync", "sync: allways", nil, nil, []string{`did you mean "always"?`}},
		{"unknown fabric", "fabric: tcp", nil, nil, []string{"fabric", "auto, verbs, iwarp"}},
		{"software only", "fabric: iwarp\nrequire_rdma: true", nil, nil, []string{"require_rdma"}},
		{"address without port", "listen: localhost", nil, nil, []string{"listen", "HOST:PORT"}},
		{"address with a bad port", "listen: localhost:70000", nil, nil, []string{"70000", "65535"}},
		{"address with a named port", "listen: localhost:http", nil, nil, []string{"65535"}},
		{"address with a bad host", "listen: 'a b:1'", nil, nil, []string{"valid host"}},
		{"bare IPv6", "listen: '::1:80'", nil, nil, []string{"HOST:PORT"}},
		{"server with port 0", "servers: ['a:0']", nil, nil, []string{"servers", "1 to 65535"}},
		{"no server", "servers: []", nil, nil, []string{"servers", "at least one"}},
		{"many servers", "servers: [" + strings.Repeat("a,", 65) + "]", nil, nil, []string{"at most 64"}},
		{"same address twice", "admin_listen: 127.0.0.1:7400", nil, nil, []string{"admin_listen", "same address"}},
		{"profiles without a port", "admin_listen: ''\npprof: true", nil, nil, []string{"pprof", "admin_listen"}},
		{"empty directory", "data_dir: ''", nil, nil, []string{"data_dir", "empty"}},
		{"long directory", "data_dir: " + long, nil, nil, []string{"at most 4096"}},
		{"directory with NUL", `data_dir: "a\0b"`, nil, nil, []string{"NUL"}},
		{"long device", "device: " + long, nil, nil, []string{"device", "at most 256"}},
		{"nameless device", "device: [a, '']", nil, nil, []string{"device", "empty name"}},
		{"device twice", "device: [a, b, a]", nil, nil, []string{"device", `"a" stands in it twice`}},
		{"no address", "listen: []", nil, nil, []string{"listen", "at least one"}},
		{"empty address", "listen: ''", nil, nil, []string{"listen", "at least one"}},
		{"address twice", "listen: ['a:1', 'a:1']", nil, nil, []string{"listen", `"a:1" stands in it twice`}},
		{"one bad address", "listen: ['a:1', b]", nil, nil, []string{"config.yaml:1: listen", `"b"`, "HOST:PORT"}},
		{"admin is the second address", "listen: ['a:1', 'a:2']\nadmin_listen: 'a:2'", nil, nil, []string{"admin_listen", "same address"}},
		{"unknown way to connect", "verbs_connect: rdmacm", nil, nil, []string{"verbs_connect", "cm, tcp"}},
		{"GID index", "gid_index: 256", nil, nil, []string{"gid_index", "1 to 255"}},
		{"GID index below", "", nil, []string{"--gid-index=-2"}, []string{"--gid-index: -2 is out of range"}},
		{"traffic class", "traffic_class: 256", nil, nil, []string{"traffic_class", "0 to 255"}},
		{"service level", "", []string{"RDMAKV_EXPERT_SERVICE_LEVEL=16"}, nil, []string{"RDMAKV_EXPERT_SERVICE_LEVEL: ", "0 to 15"}},
		{"path MTU", "expert:\n  path_mtu: 1500", nil, nil, []string{"config.yaml:2: expert.path_mtu", "1500 is not one of 0", "4096"}},
		{"huge pages", "huge_pages: true", nil, nil, []string{"huge_pages", "want text"}},
		{"huge pages by another name", "huge_pages: always", nil, nil, []string{"huge_pages", "off, try, on"}},
		{"odd regions", "huge_pages: on\nexpert: {region_size: 3MiB}", nil, nil, []string{"expert.region_size", "multiple of 2MiB"}},
		{"lease by another word", "lease: none", nil, nil, []string{"lease", "want off, or", "2s"}},
		{"lease of nothing", "lease: 0s", nil, nil, []string{"lease", "want off, or"}},
		{"lease too short", "lease: 999ms", nil, nil, []string{"lease", "1s to 1m"}},
		{"lease as a switch", "lease: false", nil, nil, []string{"lease", "want off, or", "got false"}},

		{"another way to wait", "wait_mode: busy", nil, nil, []string{"wait_mode", "adaptive, poll, event"}},
		{"spinning for ever", "expert:\n  spin: 1s", nil, nil, []string{"expert.spin", "1s is out of range: 0s to 1ms"}},
		{"spinning backwards", "expert:\n  spin: -1ns", nil, nil, []string{"expert.spin", "want auto, or"}},
		{"spinning by a number", "expert:\n  spin: 20", nil, nil, []string{"expert.spin", "want auto, or", "number 20"}},
		{"processors by name", "expert:\n  cores: all", nil, nil, []string{"expert.cores", "0 to 1023", `"all"`}},
		{"processor twice", "expert:\n  cores: [1, 0-2]", nil, nil, []string{"expert.cores", "processor 1 twice"}},
		{"processors backwards", "expert:\n  cores: 3-1", nil, nil, []string{"expert.cores", `"3-1"`}},
		{"processor below zero", "expert:\n  cores: [-1]", nil, nil, []string{"expert.cores", "number -1"}},
		{"too many processors", "expert:\n  cores: 0-1024", nil, nil, []string{"expert.cores", "0 to 1023"}},
		{"memory by half", "expert:\n  cores: 1.5", nil, nil, []string{"expert.cores", "processor numbers"}},
		{"shared with all", "shm: all", nil, nil, []string{"shm", "user, trusted, off"}},
		{"shared memory on and off", "shm: 'off'\nfabric: shm", nil, nil, []string{"shm: is off", "fabric: shm"}},
		{"shared memory is software", "require_rdma: true\nfabric: shm", nil, nil, []string{"require_rdma", "fabric: shm is one"}},
		{"long socket", "shm_dir: " + long[:65], nil, nil, []string{"shm_dir", "65 bytes", "at most 64"}},

		{"unknown variable", "", []string{"RDMAKV_LISTN=x"}, nil, []string{`"RDMAKV_LISTN"`, `"RDMAKV_LISTEN"`}},
		{"variable in other case", "", []string{"RDMAKV_listen=x"}, nil, []string{`"RDMAKV_LISTEN"`}},
		{"bad variable", "", []string{"RDMAKV_SHARDS=1x"}, nil, []string{"RDMAKV_SHARDS", "whole number"}},
		{"empty variable", "", []string{"RDMAKV_SHARDS="}, nil, []string{"RDMAKV_SHARDS", "whole number"}},
		{"number with sign", "", []string{"RDMAKV_SHARDS=+1"}, nil, []string{"whole number"}},
		{"number in hex", "", []string{"RDMAKV_SHARDS=0x10"}, nil, []string{"whole number"}},
		{"variable names no file", "", []string{"RDMAKV_CONFIG=/no/such"}, nil, []string{"/no/such", "no such file"}},
		{"bad flag", "", nil, []string{"--lease=2"}, []string{"--lease: ", "with a unit"}},
		{"bad flag range", "", nil, []string{"--shards=0"}, []string{"--shards: 0 is out of range"}},
		{"everything at once", "shards: 0\nlease: 1", []string{"RDMAKV_MAX_SESSIONS=x", "RDMAKV_X=1"}, []string{"--sync=no"},
			[]string{"config.yaml:1: shards", "config.yaml:2: lease", "RDMAKV_MAX_SESSIONS: ", `"RDMAKV_X"`, "--sync: "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, tc.file, tc.env, tc.args...)
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the message lacks %s:\n%v", w, err)
				}
			}
			if len(err.Error()) > 2000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestGoodForms: what may be written in more than one way.
func TestGoodForms(t *testing.T) {
	for _, text := range []string{
		"", "\n", "# nothing\n", "---\n", "{}\n", "shards: 32\r\nlease: 2s\r\n",
		"sync: off\n", "memory_limit: 2 GiB\n", "memory_limit: 4294967296B\n", "admin_listen: ''\n", "shards: '8'\n",
		"servers: a:1,b:2\n", "listen: a:1\n", "listen: [a:1, b:2]\n", "listen: ['[::1]:0']\n", "device: rxe0\n", "device: ''\n", "device: []\n",
		"gid_index: -1\n", "gid_index: '-1'\n", "lease: off\n", "lease: 'off'\n", "huge_pages: on\n", "huge_pages: off\n", "expert: {path_mtu: 4096}\n",
		"expert:\n  cores: 3\n", "expert:\n  cores: [0, 2-5]\n", "expert:\n  cores: 0, 2-5\n", "expert:\n  cores: []\n", "expert:\n  cores: ''\n", "expert:\n  spin: 0s\n", "expert:\n  spin: auto\n", "expert:\n  spin: 1ms\n", "shm: off\n",
	} {
		if _, err := load(t, text, []string{"HOME=/x", "OTHER_VAR=1"}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	l, err := load(t, "", nil, "--server", "a:1", "--server", "b:2,c:3")
	if err != nil || !slices.Equal(l.Servers, []string{"a:1", "b:2", "c:3"}) {
		t.Errorf("repeated --server gave %q, %v", l.Servers, err)
	}
	if l, err = load(t, "", nil, "--expert-cores", "0", "--expert-cores", "2-4"); err != nil || !slices.Equal(l.Expert.Cores, CPUs{0, 2, 3, 4}) {
		t.Errorf("repeated --expert-cores gave %v, %v", l.Expert.Cores, err)
	}
}

// TestBadFiles: what is no readable file.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	unreadable := filepath.Join(dir, "unreadable")
	if err := os.WriteFile(unreadable, nil, 0); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                         "is a directory",
		filepath.Join(dir, "no"):    "no such file",
		"/dev/zero":                 "no regular file",
		filepath.Join(dir, "a\x00"): "invalid argument",
	} {
		_, err := Load(Options{Scope: ForServer, File: path})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
	// Root reads everything, so there is nothing to see as root.
	if os.Geteuid() != 0 {
		if _, err := Load(Options{Scope: ForServer, File: unreadable}); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("unreadable file: %v", err)
		}
	}
}

// TestSearch: the first file of the path counts, and none is no fault.
func TestSearch(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	search := []string{first, second}
	if l, err := Load(Options{Search: search}); err != nil || l.File != "" {
		t.Fatalf("no file: %v, %v", l.File, err)
	}
	for _, name := range []string{second, first} {
		if err := os.WriteFile(name, []byte("shards: 3"), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := Load(Options{Search: search}); err != nil || l.File != name || l.Shards != 3 {
			t.Fatalf("read %q, %v, want %q", l.File, err, name)
		}
	}
}

// TestWriteRoundTrip: what "kvserver config" prints is a file with the same
// meaning, whatever is in the values.
func TestWriteRoundTrip(t *testing.T) {
	a, err := load(t, "data_dir: \"a: b # c\\t\\x1b\"\nservers: [\"[::1]:1\", 'x:2']\nmemory_limit: 3GiB\nexpert: {region_size: 2MiB}\nlog_level: warn\nlease: off", nil, "--device=no", "--listen=a:0,b:1", "--gid-index=-1", "--expert-spin=0s")
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range []bool{false, true} {
		var b strings.Builder
		if err := a.Print(&b, all); err != nil {
			t.Fatal(err)
		}
		again, err := load(t, b.String(), nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if !reflect.DeepEqual(a.Config, again.Config) {
			t.Errorf("read back %+v, want %+v, from\n%s", again.Config, a.Config, b.String())
		}
		// A value in force is never hidden, and one that nobody has set only without all.
		if !strings.Contains(b.String(), "  spin: 0s ") || strings.Contains(b.String(), "  path_mtu: 0 ") != all {
			t.Errorf("all %v:\n%s", all, b.String())
		}
	}
}
