package config

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// node is what a node of a cluster must be told, without any security.
var node = []string{"RDMAKV_NODE_ID=n1", "RDMAKV_GOSSIP_BIND=127.0.0.1:7402", "RDMAKV_INSECURE=true"}

// TestBadClusters is the table of settings of a cluster that are refused.
func TestBadClusters(t *testing.T) {
	for _, tc := range []struct {
		name string
		file string // and below it node_id, gossip.bind and insecure, unless it has them
		env  []string
		want []string
	}{
		{"section without keys", "gossip:", nil, []string{"config.yaml:1: gossip", "section without keys"}},
		{"null section", "gossip: ~", nil, []string{"gossip", "section without keys"}},
		{"section as text", "cluster: red", nil, []string{"cluster", "want keys below it"}},
		{"section as list", "gossip: [a]", nil, []string{"want keys below it"}},
		{"section with an anchor", "gossip: &a\n  bind: a:1", nil, []string{"anchors"}},
		{"section twice", "tls:\n  cert: a\ntls:\n  key: b", nil, []string{"config.yaml:3: tls", "twice"}},
		{"dotted key", "gossip.bind: a:1", nil, []string{"gossip.bind", "written as a section", `"  bind: ..."`}},
		{"unknown key in a section", "gossip:\n  bnid: a:1", nil, []string{`unknown key "gossip.bnid"`, `"gossip.bind"`}},
		{"key twice in a section", "gossip:\n  bind: a:1\n  bind: b:1", nil, []string{"config.yaml:3: gossip.bind", "twice"}},
		{"section in a section", "gossip:\n  bind:\n    host: a", nil, []string{"gossip.bind", "section"}},
		{"null in a section", "gossip:\n  bind:", nil, []string{"gossip.bind", "no value"}},
		{"wrong type in a section", "gossip:\n  bind: 7402", nil, []string{"config.yaml:2: gossip.bind", "want text"}},
		{"unknown section", "gosip:\n  bind: a:1", nil, []string{`"gosip"`, `did you mean "gossip"`}},
		{"unknown variable", "", []string{"RDMAKV_GOSSIP_BNID=x"}, []string{`"RDMAKV_GOSSIP_BIND"`}},

		{"no node_id", "", []string{"RDMAKV_GOSSIP_BIND=a:1", "RDMAKV_INSECURE=true"}, []string{"node_id", "needs a name"}},
		{"node_id with capitals", "", []string{"RDMAKV_NODE_ID=Node1"}, []string{"RDMAKV_NODE_ID: ", `"Node1" is no name`}},
		{"node_id with a slash", "", []string{"RDMAKV_NODE_ID=../x"}, []string{"no name"}},
		{"long node_id", "", []string{"RDMAKV_NODE_ID=" + strings.Repeat("n", 64)}, []string{"1 to 63"}},
		{"open doors", "", []string{"RDMAKV_NODE_ID=n1", "RDMAKV_GOSSIP_BIND=127.0.0.1:7402"},
			[]string{"gossip.key_file", "RDMAKV_GOSSIP_KEY", "secret_file", "RDMAKV_SECRET", "cluster.name", "insecure: true"}},
		{"half open", "", []string{"RDMAKV_NODE_ID=n1", "RDMAKV_GOSSIP_BIND=127.0.0.1:7402", "RDMAKV_SECRET_FILE=/s", "RDMAKV_CLUSTER_NAME=red"},
			[]string{"gossip.key_file: a cluster needs a gossip key"}},
		{"cluster keys without a cluster", "gossip:\n  join: [a:1]\ncluster:\n  name: red\nnode_id: n1", []string{},
			[]string{"gossip.join: means nothing without gossip.bind", "cluster.name: means", "node_id: means"}},

		{"a level that nobody can hold", "cluster:\n  hold_level: true", []string{}, []string{"cluster.hold_level: means nothing without gossip.bind"}},
		{"a level to hold", "cluster:\n  hold_level: 1", nil, []string{"cluster.hold_level", "true or false"}},
		{"a word for the level to hold", "", []string{"RDMAKV_CLUSTER_HOLD_LEVEL=maybe"}, []string{"RDMAKV_CLUSTER_HOLD_LEVEL: ", "true or false"}},
		{"no word for the level to hold", "cluster:\n  hold_level:", nil, []string{"cluster.hold_level", "no value"}},

		{"bind without a port", "gossip:\n  bind: 127.0.0.1", nil, []string{"gossip.bind", "HOST:PORT"}},
		{"bind at listen", "gossip:\n  bind: 127.0.0.1:7400", nil, []string{"gossip.bind", "same address as listen"}},
		{"bind at admin_listen", "gossip:\n  bind: 127.0.0.1:7401", nil, []string{"gossip.bind", "admin_listen"}},
		{"advertising everything", "gossip:\n  advertise: 0.0.0.0:7402", nil, []string{"gossip.advertise", "name one"}},
		{"joining without a port", "", []string{"RDMAKV_GOSSIP_JOIN=a"}, []string{"RDMAKV_GOSSIP_JOIN: ", "HOST:PORT"}},
		{"joining port 0", "", []string{"RDMAKV_GOSSIP_JOIN=a:0"}, []string{"1 to 65535"}},
		{"joining twice", "", []string{"RDMAKV_GOSSIP_JOIN=a:1,a:1"}, []string{"twice"}},
		{"joining itself", "", []string{"RDMAKV_GOSSIP_JOIN=127.0.0.1:7402"}, []string{"RDMAKV_GOSSIP_JOIN", "this node itself"}},
		{"unknown profile", "gossip:\n  profile: lam", nil, []string{"gossip.profile", "lan, fast, wan", `"lan"`}},
		{"address as a network", "gossip:\n  allow: [10.0.0.1]", nil, []string{"gossip.allow", "10.0.0.1/32"}},
		{"network with host bits", "gossip:\n  allow: [10.0.0.1/8]", nil, []string{"is it 10.0.0.0/8?"}},
		{"cluster with blanks", "cluster:\n  name: my cluster", nil, []string{"cluster.name", "no name"}},
		{"advertise with a port", "advertise: ['10.0.0.1:7400']", nil, []string{"advertise", "ports are those of listen"}},
		{"advertise everything", "advertise: ['0.0.0.0']", nil, []string{"advertise", "name one"}},

		{"half of TLS", "tls:\n  cert: /c", nil, []string{"config.yaml:2: tls.cert: is given without tls.key and tls.ca", "both ends"}},
		{"TLS on cards", "fabric: verbs\ntls: {cert: a, key: b, ca: c}", nil, []string{"tls.cert", "iwarp alone"}},
		{"more from one host than there are", "max_sessions: 4\nexpert: {max_sessions_per_host: 5}", nil, []string{"expert.max_sessions_per_host", "1 to 4"}},
		{"rkeys of a moment", "rkey_max_age: 1s", nil, []string{"rkey_max_age", "5s"}},
		{"rkey_max_age of nothing", "rkey_max_age: 0s", nil, []string{"rkey_max_age", "want off"}},
		{"tenant as a path", "tenant: a/b", nil, []string{"tenant", "no name"}},
		{"everything at once", "gossip:\n  bind: x\n  profile: y\ncluster: {name: ''}", []string{"RDMAKV_NODE_ID=N", "RDMAKV_GOSSIP_JOIN=a"},
			[]string{"config.yaml:2: gossip.bind", "config.yaml:3: gossip.profile", "RDMAKV_NODE_ID: ", "RDMAKV_GOSSIP_JOIN: "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := tc.env
			if !strings.Contains(strings.Join(env, " "), "NODE_ID") && !strings.Contains(strings.Join(env, " "), "GOSSIP_BIND") && (env == nil || len(env) > 0) {
				env = append(env, node[0], node[2])
				if !strings.Contains(tc.file, "bind") {
					env = append(env, node[1])
				}
			}
			_, err := load(t, tc.file, env)
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the message lacks %s:\n%v", w, err)
				}
			}
		})
	}
}

func TestGoodClusters(t *testing.T) {
	secure := []string{"RDMAKV_NODE_ID=n1", "RDMAKV_GOSSIP_BIND=127.0.0.1:7402", "RDMAKV_CLUSTER_NAME=red", "RDMAKV_SECRET_FILE=/s"}
	for _, tc := range []struct {
		file string
		env  []string
		name string
	}{
		{"", node, "rdmakv"},
		{"", append([]string{"RDMAKV_GOSSIP_KEY_FILE=/k"}, secure...), "red"},
		{"", append([]string{"RDMAKV_GOSSIP_KEY=x"}, secure...), "red"},
		{"node_id: kv-1.rack2\ninsecure: true\ngossip:\n  bind: 0.0.0.0:7402\n  join: [kv1:7402, kv2:7402]\n  allow: [10.0.0.0/8]\n", nil, "rdmakv"},
		{"gossip: {}\ncluster: {}\n", nil, "rdmakv"},
	} {
		l, err := load(t, tc.file, tc.env)
		if err != nil {
			t.Errorf("%q %q: %v", tc.file, tc.env, err)
			continue
		}
		if l.Clustered() != (l.Gossip.Bind != "") || l.ClusterName() != tc.name {
			t.Errorf("%q: clustered %v as %q, want %q", tc.file, l.Clustered(), l.ClusterName(), tc.name)
		}
	}
}

// TestSecretsOfTheEnvironment: they arrive, exclude a file, and are shown by
// nothing that prints a configuration.
func TestSecretsOfTheEnvironment(t *testing.T) {
	const secret = "correct horse battery"
	key := base64.StdEncoding.EncodeToString([]byte("0123456789abcdef"))
	other := base64.StdEncoding.EncodeToString([]byte("0123456789abcdefghijklmn"))
	l, err := load(t, "", append([]string{"RDMAKV_SECRET=" + secret, "RDMAKV_GOSSIP_KEY=" + key + "," + other}, node...))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.Secret(); err != nil || string(got) != secret {
		t.Errorf("secret %q, %v", got, err)
	}
	if got, err := l.GossipKeys(); err != nil || len(got) != 2 || len(got[0]) != 16 || len(got[1]) != 24 {
		t.Errorf("gossip keys %q, %v", got, err)
	}
	var out strings.Builder
	if err := l.Print(&out, false); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "%v %+v %#v %v %+v", l, l, l, *l, l.secret)
	fmt.Fprint(&out, l.Attrs(ForServer|ForClient))
	for _, s := range []string{secret, key, other, fmt.Sprintf("%x", secret)} {
		if strings.Contains(out.String(), s) {
			t.Errorf("a secret is shown in\n%s", out.String())
		}
	}
	if !strings.Contains(out.String(), "RDMAKV_SECRET is set") {
		t.Errorf("nothing says that there is a secret:\n%s", out.String())
	}
	if l, err = load(t, "secret_file: /s", []string{"RDMAKV_SECRET=" + secret}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Secret(); err == nil || !strings.Contains(err.Error(), "RDMAKV_SECRET is set too") {
		t.Errorf("both: %v", err)
	}
	if l, err = load(t, "", []string{"RDMAKV_SECRET=short"}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Secret(); err == nil || !strings.Contains(err.Error(), "5 bytes, want 16") || strings.Contains(err.Error(), "short") {
		t.Errorf("a short one: %v", err)
	}
}

func TestGossipKeys(t *testing.T) {
	b64 := func(n int) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", n))) }
	path := filepath.Join(t.TempDir(), "keys")
	for _, tc := range []struct {
		text string
		mode os.FileMode
		n    int
		want string
	}{
		{b64(32) + "\n", 0o600, 1, ""},
		{b64(16) + "\r\n\n" + b64(24) + "\n" + b64(32), 0o400, 3, ""},
		{b64(32), 0o644, 0, "mode 0644"},
		{"", 0o600, 0, "holds no key"},
		{b64(17), 0o600, 0, "key 1 has 17 bytes"},
		{b64(16) + "\nkkkk kkkk*", 0o600, 0, "key 2 has 3 bytes"},
		{"kkkk*", 0o600, 0, "key 1 is no base64"},
		{b64(16) + "\n" + b64(16), 0o600, 0, "keys 1 and 2 are the same"},
		{strings.Repeat("a,", 9), 0o600, 0, "holds 9 keys"},
		{strings.Repeat("a", 5000), 0o600, 0, "larger than 4096"},
	} {
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte(tc.text), tc.mode); err != nil {
			t.Fatal(err)
		}
		l := &Loaded{Config: Default()}
		l.Gossip.KeyFile = path
		keys, err := l.GossipKeys()
		switch {
		case tc.want == "" && (err != nil || len(keys) != tc.n):
			t.Errorf("%q: %d keys, %v", tc.text, len(keys), err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%q: %v, want %q", tc.text, err, tc.want)
		case err != nil && strings.Contains(err.Error(), "kkk"):
			t.Errorf("the message shows a key: %v", err)
		}
	}
	if keys, err := (&Loaded{Config: Default()}).GossipKeys(); keys != nil || err != nil {
		t.Errorf("none: %v, %v", keys, err)
	}
}

// TestWriteSections: what is printed has its sections, and reads back.
func TestWriteSections(t *testing.T) {
	a, err := load(t, "", append([]string{"RDMAKV_GOSSIP_JOIN=a:1,b:2", "RDMAKV_CLUSTER_NAME=red", "RDMAKV_ADVERTISE=h"}, node...))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := a.Print(&b, false); err != nil {
		t.Fatal(err)
	}
	again, err := load(t, b.String(), nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	if !reflect.DeepEqual(a.Config, again.Config) {
		t.Errorf("read back %+v, want %+v, from\n%s", again.Config, a.Config, b.String())
	}
}
