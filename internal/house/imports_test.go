package house

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rdmakv/rdmakv"

// A pkg is what "go list" says of one package.
type pkg struct {
	ImportPath   string
	Imports      []string // of its code
	TestImports  []string
	XTestImports []string
	Deps         []string // of its code, transitively
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// allowed lists, for each part of the module, the parts of the module that its
// code may import. A part ends in /... when it stands for all packages below.
// The list goes from the top of the house down, and nothing imports upwards.
var allowed = []struct {
	part   string
	others []string
}{
	{"cmd/kvserver", []string{"internal/keeper", "internal/server", "internal/inspect", "internal/config", "internal/machine", "internal/secret", "internal/cli/...", "internal/version", "rdma/..."}},
	{"cmd/kvclient", []string{"cmd/kvclient/internal/..."}}, // puts the commands together
	{"cmd/kvclient/internal/app", []string{"client", "internal/cli/...", "internal/config", "internal/doctor", "internal/machine", "internal/secret", "internal/version", "rdma", "store/layout"}},
	{"cmd/kvclient/internal/keys", []string{"cmd/kvclient/internal/app", "client", "client/admin", "internal/cli", "store/layout"}},
	{"cmd/kvclient/internal/nodes", []string{"cmd/kvclient/internal/app", "cmd/kvclient/internal/backups", "cmd/kvclient/internal/fabric", "client", "client/admin", "internal/cli", "internal/cluster", "internal/config", "internal/doctor", "internal/secret", "internal/wire", "store/layout", "store/region"}},
	{"cmd/kvclient/internal/backups", []string{"cmd/kvclient/internal/app", "client", "client/admin", "internal/backup", "internal/cli", "internal/cluster", "store/layout"}},
	{"cmd/kvclient/internal/bench", []string{"cmd/kvclient/internal/app", "client", "client/admin", "internal/chart", "internal/cli", "internal/load/...", "store/layout"}},
	{"cmd/kvclient/internal/fabric", []string{"cmd/kvclient/internal/app", "internal/cli/...", "internal/config", "internal/perf", "rdma", "rdma/verbs/ibv"}}, // no client: it measures what is below
	{"cmd/kvclient/internal/apptest", []string{"internal/server", "rdma/..."}},
	{"demo", []string{"client", "client/fabrics", "rdma/...", "test/node"}},
	{"examples/...", []string{"client", "client/fabrics", "rdma/...", "examples/internal/..."}},
	{"test/...", []string{"..."}},
	{"lab/...", []string{"lab/..."}},
	{"lab/siw/...", []string{"lab/...", "rdma/..."}}, // the two iWARPs meet there
	{"bench", []string{"..."}},                       // has no code but benchmarks
	{"bench/compare", []string{"..."}},
	{"bench/logcost", []string{"bench/compare/report", "store", "store/layout"}},
	{"bench/compare/report", []string{"internal/chart"}},
	{"bench/compare/servers", nil},
	{"bench/compare/jobs", []string{"bench/compare/report", "bench/compare/servers", "internal/load"}}, // knows no store: bench/compare/etcd, a module of its own, imports it
	{"bench/compare/counters", []string{"client", "client/admin"}},
	{"bench/scale", []string{"bench/compare/counters", "bench/compare/report", "bench/compare/servers", "client", "client/admin", "internal/cluster", "internal/load/...", "membership", "rdma", "rdma/iwarp", "rdma/shm", "store/layout", "store/region"}},
	{"bench/compare/clients", []string{"bench/compare/report", "internal/load", "internal/perf"}},
	{"internal/server", []string{"store/...", "membership", "rdma/...", "internal/..."}},
	{"internal/server/auth", []string{"internal/server/base", "internal/server/work", "internal/wire", "internal/secret", "internal/wholefile", "store/layout"}},
	{"internal/server/member", []string{"internal/server/base", "membership", "internal/cluster", "internal/feature", "internal/shardmap/...", "internal/wire", "store", "store/layout"}},
	{"internal/server/groups", []string{"internal/server/base", "internal/cluster", "internal/consensus", "internal/consensus/driver", "internal/consensus/transport", "internal/wire", "rdma", "store"}},
	{"internal/server/change", []string{"internal/server/base", "internal/server/groups", "internal/cluster", "internal/consensus", "internal/consensus/document", "internal/feature", "internal/meta", "internal/seat", "internal/wire"}},
	{"internal/server/telemetry", []string{"internal/server/base", "internal/server/auth", "internal/server/memory", "internal/server/member", "membership", "internal/cluster", "internal/wire", "internal/version", "rdma", "rdma/mem", "rdma/wait", "store", "store/layout"}},
	{"internal/server/handle", []string{"internal/server/base", "internal/server/work", "internal/server/auth", "internal/server/memory", "internal/server/session", "internal/cluster", "internal/consensus", "internal/wire", "store", "store/layout"}},
	{"internal/server/memory", []string{"internal/server/base", "internal/wire", "rdma", "rdma/mem", "store/layout"}},
	{"internal/server/space", []string{"internal/server/base", "internal/server/work", "internal/server/auth", "internal/server/memory", "internal/server/session", "internal/control", "rdma", "store"}},
	{"internal/server/session", []string{"internal/server/base", "internal/server/work", "internal/server/auth", "internal/wire", "rdma", "rdma/mem", "rdma/wait"}},
	{"internal/server/deaf", []string{"internal/wire", "rdma"}},
	{"internal/server/work", nil},
	{"internal/server/base", []string{"rdma", "rdma/mem", "internal/wire", "internal/cluster"}},
	{"client", []string{"client/internal/...", "rdma", "rdma/wait", "store/layout", "internal/wire", "internal/cluster"}},
	{"client/internal/base", []string{"rdma", "rdma/wait", "store/layout", "internal/turnstile", "internal/wire"}},
	{"client/internal/device", []string{"client/internal/base", "rdma", "rdma/mem", "store/layout"}},
	{"client/internal/places", []string{"internal/prefetch", "store/layout"}},
	{"client/internal/session", []string{"client/internal/base", "client/internal/device", "client/internal/places", "rdma", "rdma/boottime", "rdma/wait", "store/layout", "internal/cluster", "internal/turnstile", "internal/wire", "internal/world"}},
	{"client/internal/peer", []string{"client/internal/base", "client/internal/device", "client/internal/session", "rdma", "rdma/boottime", "internal/turnstile", "internal/wire", "internal/world"}},
	{"client/internal/route", []string{"client/internal/base", "client/internal/peer", "client/internal/session", "internal/cluster", "internal/world"}},
	{"client/internal/read", []string{"client/internal/base", "client/internal/device", "client/internal/peer", "client/internal/route", "client/internal/session", "rdma", "store/layout", "internal/cluster", "internal/wire"}},
	{"client/internal/write", []string{"client/internal/base", "client/internal/device", "client/internal/peer", "client/internal/route", "client/internal/session", "store/layout", "internal/cluster", "internal/turnstile", "internal/wire"}},
	{"client/internal/parts", []string{"client/internal/base", "client/internal/read", "client/internal/route", "client/internal/write", "store/layout", "internal/cluster", "internal/wire"}},
	{"client/internal/clienttest", []string{"rdma/...", "store/layout", "internal/wire", "internal/cluster"}},
	{"client/internal/clienttest/node", []string{"client/internal/clienttest", "internal/server", "rdma/...", "test/crashfs"}},
	{"client/admin", []string{"client", "client/internal/base", "client/internal/parts", "client/internal/peer", "client/internal/read", "client/internal/route", "client/internal/session", "store/layout", "internal/cluster", "internal/feature", "internal/wire"}}, // operators and tools
	{"client/fabrics", []string{"client/internal/base", "rdma", "rdma/shm", "rdma/verbs", "rdma/iwarp"}},                                                                                                                                                               // nothing imports it but programs
	{"client/metrics", []string{"client", "client/admin"}}, // Prometheus, for programs that want it
	{"membership", []string{"internal/cluster"}},
	// What a group of replicas agrees by: it knows the log, and no store.
	{"internal/consensus", nil},
	{"internal/consensus/core", []string{"internal/consensus", "store/log"}},
	{"internal/consensus/driver", []string{"internal/consensus", "internal/consensus/core", "store/log"}},
	{"internal/consensus/transport", []string{"internal/consensus", "internal/wire", "rdma", "rdma/mem"}},
	{"internal/consensus/document", []string{"internal/consensus", "internal/wholefile"}}, // it is handed its engine, and knows no log
	{"internal/consensus/consensustest", []string{"internal/consensus", "internal/consensus/core", "store/log", "store/log/logtest"}},
	{"store", []string{"store/...", "internal/consensus"}},
	{"store/layout", nil},
	// The rooms of the store: none imports store, and each only what it names.
	{"store/internal/base", []string{"store/layout", "store/region"}},
	{"store/internal/admit", []string{"store/internal/base", "store/log"}},
	{"store/internal/clock", []string{"store/internal/base"}},
	{"store/internal/dedup", []string{"store/internal/base", "store/layout"}},
	{"store/internal/dirty", []string{"internal/prefetch", "store/layout", "store/log"}},
	{"store/internal/disk", []string{"store/internal/base", "store/internal/clock", "store/internal/dedup", "store/internal/tables", "store/layout", "store/log"}},
	{"store/internal/newest", []string{"internal/consensus", "store/internal/base", "store/internal/dirty", "store/internal/disk", "store/internal/entry", "store/internal/flight", "store/internal/logged", "store/internal/shard", "store/layout", "store/log"}},
	{"store/internal/ckpt", []string{"internal/consensus", "store/internal/entry", "store/internal/base", "store/internal/checkpoint", "store/internal/clock", "store/internal/disk", "store/internal/shard", "store/internal/tables", "store/layout", "store/log"}},
	{"store/internal/journal", []string{"store/internal/admit", "store/internal/base", "store/internal/checkpoint", "store/internal/ckpt", "store/internal/dedup", "store/internal/dirty", "store/internal/disk", "store/internal/flight", "store/internal/logged", "store/internal/newest", "store/internal/pipeline", "store/internal/shard", "store/internal/tables", "store/layout", "store/log"}},
	{"store/internal/events", []string{"store/internal/base", "store/layout"}},
	{"store/internal/parts", []string{"store/internal/base", "store/layout"}},
	{"store/internal/flight", []string{"store/internal/base", "store/internal/clock", "store/layout", "store/log"}},
	{"store/internal/logged", []string{"store/internal/base", "store/internal/dedup", "store/internal/flight", "store/layout", "store/log"}}, // of the log it knows positions alone
	{"store/internal/entry", []string{"internal/consensus", "store/internal/flight", "store/internal/logged", "store/layout"}},
	{"store/internal/replica", []string{"internal/consensus", "store/internal/base", "store/internal/dedup", "store/internal/entry", "store/internal/flight", "store/internal/logged", "store/internal/shard", "store/layout", "store/log"}},
	{"store/internal/image", []string{"store/internal/base", "store/internal/dedup", "store/internal/disk", "store/internal/entry", "store/layout"}},
	{"store/internal/pipeline", []string{"store/internal/base", "store/internal/dedup", "store/internal/flight", "store/internal/shard", "store/layout"}},
	{"store/internal/tables", []string{"store/internal/base"}}, // it changes a base, and knows nothing of what is in it
	{"store/internal/shard", []string{"store/internal/base", "store/internal/clock", "store/internal/dedup", "store/internal/dirty", "store/internal/flight", "internal/prefetch", "store/internal/sketch", "store/index", "store/layout", "store/reclaim", "store/region", "store/slab"}},
	{"store/internal/residents", []string{"store/internal/base", "store/internal/dirty", "store/internal/disk", "store/internal/newest", "store/internal/shard", "store/layout", "store/index", "store/log", "store/slab"}},
	{"store/internal/reads", []string{"store/internal/base", "store/internal/clock", "store/internal/dirty", "store/internal/disk", "store/internal/flight", "store/internal/newest", "store/internal/residents", "store/internal/shard", "store/layout"}},
	{"store/internal/upkeep", []string{"store/internal/base", "store/internal/admit", "store/internal/clock", "store/internal/dedup", "store/internal/disk", "store/internal/flight", "store/internal/pipeline", "store/internal/shard", "store/layout", "store/log"}},
	{"store/internal/checkpoint", []string{"internal/consensus", "store/internal/entry", "store/internal/base", "store/internal/clock", "store/internal/dedup", "store/internal/disk", "store/internal/logged", "store/internal/tables", "store/layout", "store/log"}},
	{"store/internal/sketch", nil},
	{"store/internal/warm", []string{"store/index", "store/internal/base", "store/internal/shard", "store/layout", "store/region"}},
	// The log knows no store: replicated groups use it as well as a keyspace.
	{"store/log", []string{"store/log/internal/..."}},
	{"store/log/internal/format", nil},
	{"store/log/internal/streams", []string{"store/log/internal/format"}},
	{"store/log/logtest", []string{"store/log", "store/log/internal/format"}},
	{"store/index", []string{"store/layout", "store/reclaim", "store/region", "internal/prefetch"}},
	{"store/...", []string{"store/..."}},
	// The fabrics: each knows the words (rdma) and what it needs of the rooms below, and
	// none knows another.
	{"rdma/iwarp", []string{"rdma", "rdma/boottime", "rdma/wait", "rdma/mem", "rdma/internal/soft", "rdma/internal/setup", "rdma/iwarp/internal/proto"}},
	{"rdma/shm", []string{"internal/prefetch", "rdma", "rdma/mem", "rdma/internal/soft", "rdma/internal/setup", "rdma/internal/memfd"}},
	{"rdma/sim", []string{"rdma", "rdma/mem", "rdma/internal/soft", "rdma/internal/setup"}},
	{"rdma/verbs", []string{"rdma", "rdma/mem", "rdma/internal/setup", "rdma/verbs/ibv", "rdma/verbs/internal/tcp"}},
	{"rdma/verbs/internal/tcp", []string{"rdma", "rdma/internal/setup", "rdma/verbs/ibv"}},
	{"rdma/verbs/ibv", nil},
	{"rdma/rdmatest", []string{"rdma", "rdma/wait", "rdma/mem"}},
	{"rdma/wait", []string{"rdma"}},
	{"rdma/iwarp/internal/proto", []string{"rdma"}},
	{"rdma/internal/soft", []string{"rdma"}},
	{"rdma/internal/setup", []string{"rdma"}},
	{"rdma/mem", []string{"rdma/internal/memfd"}},
	{"rdma/internal/memfd", nil},
	{"rdma/boottime", nil},
	{"rdma", nil},
	{"internal/wire", []string{"store/layout"}},
	{"internal/perf", []string{"rdma", "rdma/mem"}},
	{"internal/load", nil}, // knows no store
	{"internal/load/rdmakv", []string{"internal/load", "client", "client/admin"}},
	{"internal/chart", nil},
	{"internal/doctor", []string{"client", "client/admin", "internal/shardmap/format", "internal/cluster", "internal/feature", "rdma/...", "store/layout"}},
	{"deploy", nil}, // has no code but tests
	{"internal/inspect", []string{"store", "store/log", "internal/control"}},
	{"internal/control", nil},
	{"internal/keeper", nil},
	{"internal/backup", []string{"store/layout"}}, // knows no cluster
	{"internal/meta", []string{"internal/cluster", "internal/feature"}},
	{"internal/seat", []string{"internal/cluster", "internal/consensus", "internal/feature", "internal/meta"}},
	{"internal/feature", nil},
	{"internal/cluster", nil},
	{"internal/shardmap", []string{"internal/cluster", "internal/feature", "internal/shardmap/format", "internal/wholefile"}},
	{"internal/shardmap/format", []string{"internal/cluster", "internal/feature"}},
	{"internal/cli", []string{"internal/config"}},
	{"internal/cli/fabrics", []string{"internal/config", "rdma/..."}},
	{"internal/config", nil},
	{"internal/machine", nil},
	{"internal/prefetch", nil},
	{"internal/teeth", nil},
	{"internal/teeth/mutants", nil},
	{"internal/secret", nil},
	{"internal/version", nil},
	{"internal/wholefile", nil},
	{"internal/turnstile", nil},
	{"internal/world", nil},
	{"internal/house", []string{"internal/feature"}},
}

// banned lists what the code of a part must not reach, not even through
// others, and why.
var banned = []struct {
	part string
	deps []string
	why  string
}{
	{"client", []string{module + "/store", module + "/internal/server", module + "/membership", "github.com/cockroachdb/pebble", "github.com/hashicorp/memberlist", "github.com/spf13/viper", "github.com/spf13/cobra"},
		"whoever links the client library must get neither a database, nor gossip, nor a configuration system"},
	{"client", []string{module + "/rdma/iwarp", module + "/rdma/shm", module + "/rdma/verbs", module + "/rdma/sim", module + "/rdma/internal/soft", module + "/client/fabrics", module + "/client/admin", module + "/client/metrics", "github.com/prometheus", "crypto/tls"},
		"a program links the fabrics that it names, and no others"},
	{"client/admin", []string{module + "/rdma/iwarp", module + "/rdma/shm", module + "/rdma/verbs", module + "/client/fabrics", module + "/client/metrics", "github.com/prometheus", "crypto/tls"},
		"a program links the fabrics that it names, and no others"},
	{"cmd/kvserver", []string{module + "/client"},
		"a node is no client of its own store"},
	{"cmd/kvclient/...", []string{module + "/store", module + "/internal/server", "github.com/cockroachdb/pebble", "github.com/hashicorp/memberlist"},
		"the command line is the library with flags: it must not carry a server along"},
	{"internal/consensus", []string{"go.etcd.io/raft", "google.golang.org/protobuf"},
		"who uses the interface must not depend on the library behind it"},
	{"internal/consensus/document", []string{"go.etcd.io/raft", "google.golang.org/protobuf", module + "/internal/consensus/driver", module + "/store", module + "/store/log"},
		"a document is handed entries, whoever has agreed on them, and has a file, not a store"},
	{"store/...", []string{"go.etcd.io/raft", module + "/internal/consensus/driver"},
		"a store hands over entries and is handed them: how they are agreed on is the engine's"},
	{"store/...", []string{module + "/rdma", module + "/internal/server", module + "/client"},
		"the store is handed memory: it must not know how anybody reads it"},
	{"store/internal/base", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/admit", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/clock", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/dedup", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/dirty", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/events", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/parts", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/flight", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/logged", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/entry", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/replica", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/pipeline", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/shard", []string{"github.com/cockroachdb"}, noDisk},
	{"store/internal/sketch", []string{"github.com/cockroachdb"}, noDisk},
	{"internal/server/memory", []string{module + "/store"},
		"regions and staging are kept for whoever stores: the rest of a store is none of their business"},
	{"internal/server/space", []string{module + "/internal/server/handle", module + "/internal/server/member", module + "/internal/server/telemetry"},
		"a space is handed its handlers, and knows no node"},
	{"internal/server/session", []string{module + "/store", module + "/internal/server/memory", module + "/internal/server/member"},
		"a session moves messages: what they mean is the handler's"},
	{"store/layout", []string{"github.com/cockroachdb", "net", "os/exec"},
		"the bytes that a remote reader sees are decided without disk, network or database"},
	{"rdma/...", []string{module + "/store", module + "/client", module + "/internal/wire", module + "/internal/server", module + "/internal/config"},
		"a fabric moves bytes; it must work for programs that are no key-value store"},
	{"lab", []string{module + "/rdma", module + "/store", module + "/client", module + "/internal"},
		"the lab is the ground on which the product is tested: it must not rest on it"},
	{"internal/wire", []string{module + "/rdma", module + "/store", "github.com/cockroachdb", "net", "os/exec"},
		"messages are encoded and decoded without touching the world"},
	{"internal/cluster", []string{"net", "os/exec"},
		"which key belongs to which shard is a pure function"},
	{"internal/config", []string{module + "/store", module + "/client", module + "/rdma", module + "/internal/server"},
		"only cmd/ joins the configuration with what it configures"},
	{"...", []string{"testing", "github.com/anishathalye/porcupine", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/cockroachdb/datadriven", "github.com/rogpeppe/go-internal/testscript"},
		"tools of tests do not belong into programs"},
}

const noDisk = "this room of the store is tested without a disk"

// unused lists what the code of a part must not import itself. Others may, below it:
// errors of package rdma and the text of fmt rest on half of the standard library.
var unused = []struct {
	part    string
	imports []string
	why     string
}{
	{"rdma/iwarp/internal/proto", []string{"net", "os", "time", "sync", "sync/atomic", "context"},
		"the bytes of a protocol are decided without the world"},
	{"store/internal/logged", []string{"os", "time", "sync", "sync/atomic", "context"},
		"the bytes of a write are decided without the world"},
	{"store/internal/entry", []string{"os", "time", "sync", "sync/atomic", "context"},
		"which entries count is decided without the world, so that all replicas decide alike"},
	{"internal/consensus/core", []string{"net", "os", "time", "sync", "sync/atomic", "context"},
		"a replica is steps that its owner takes, so that the same steps give the same replica"},
	{"rdma/internal/soft", []string{"net", "os", "syscall", "golang.org/x/sys/unix"},
		"a queue knows no wire"},
	{"store", []string{"github.com/cockroachdb/pebble/v2"}, onlyDisk},
	{"store/internal/residents", []string{"github.com/cockroachdb/pebble/v2"}, onlyDisk},
	{"store/internal/reads", []string{"github.com/cockroachdb/pebble/v2"}, onlyDisk},
	{"store/internal/upkeep", []string{"github.com/cockroachdb/pebble/v2"}, onlyDisk},
	{"store/internal/checkpoint", []string{"github.com/cockroachdb/pebble/v2"}, onlyDisk},
	{"internal/...", []string{"github.com/cockroachdb/pebble/v2"}, onlyDisk},
	{"cmd/...", []string{"github.com/cockroachdb/pebble/v2"}, onlyDisk},
}

const onlyDisk = "store/internal/disk alone reaches Pebble, and store/internal/tables, which changes a base without a log: what is durable has one door"

// forTests are packages whose code is made for tests.
var forTests = []string{"client/internal/clienttest/...", "cmd/kvclient/internal/apptest", "internal/server/deaf", "rdma/rdmatest", "internal/consensus/consensustest", "examples/internal/runs", "test/...", "internal/house"}

// TestImports holds every package to the three lists above.
func TestImports(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if name == "" {
			continue
		}
		others, known := allowedFor(name)
		if !known {
			t.Errorf("%s stands in no line of the list of allowed imports: add it", name)
			continue
		}
		for _, imp := range p.Imports {
			if rest, ours := strings.CutPrefix(imp, module+"/"); ours && !matchAny(others, rest) {
				t.Errorf("%s imports %s, and may import %v", name, rest, others)
			}
		}
		for _, ban := range unused {
			for _, imp := range ban.imports {
				if matches(ban.part, name) && slices.Contains(p.Imports, imp) {
					t.Errorf("%s imports %s: %s", name, imp, ban.why)
				}
			}
		}
		for _, ban := range banned {
			if !matches(ban.part, name) || matchAny(forTests, name) {
				continue
			}
			for _, dep := range p.Deps {
				if slices.ContainsFunc(ban.deps, func(b string) bool { return reaches(dep, b) }) {
					t.Errorf("%s reaches %s: %s", name, dep, ban.why)
				}
			}
		}
	}
}

// reaches reports whether dep is the banned package or, for one of another module, below
// it. A ban of our own store does not include store/layout, which any package may
// import.
func reaches(dep, ban string) bool {
	if dep == ban {
		return true
	}
	return !strings.HasPrefix(ban, module) && strings.Contains(ban, "/") && strings.HasPrefix(dep, ban+"/")
}

// allowedFor returns the line of the list for a package: the exact one, else
// the longest that covers it.
func allowedFor(name string) (others []string, known bool) {
	best := -1
	for _, line := range allowed {
		if matches(line.part, name) {
			score := len(line.part)
			if line.part == name {
				score = 1 << 20
			}
			if score > best {
				others, known, best = line.others, true, score
			}
		}
	}
	return others, known
}

// matches reports whether a pattern like "rdma/..." covers a package. It
// covers "rdma" too.
func matches(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == dir || strings.HasPrefix(name, dir+"/")
	}
	return path.Clean(pattern) == name
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// TestRulesHaveTeeth: the matching above refuses what it should, so that a
// mistake in it does not turn the rules off.
func TestRulesHaveTeeth(t *testing.T) {
	others, known := allowedFor("client")
	if !known || matchAny(others, "store") || !matchAny(others, "store/layout") || matchAny(others, "internal/server") {
		t.Errorf("client may import %v", others)
	}
	if others, known = allowedFor("rdma/shm"); !known || matchAny(others, "rdma/iwarp") || matchAny(others, "rdma/verbs/ibv") {
		t.Errorf("rdma/shm may import %v", others)
	}
	if _, known = allowedFor("rdma/new"); known {
		t.Error("a room of rdma that nobody has thought about is known")
	}
	others, _ = allowedFor("store/layout")
	if matchAny(others, "store/region") {
		t.Errorf("store/layout may import %v", others)
	}
	if !reaches("github.com/cockroachdb/pebble/v2", "github.com/cockroachdb/pebble") || !reaches(module+"/store", module+"/store") {
		t.Error("a banned package is not found")
	}
	if reaches(module+"/store/layout", module+"/store") || reaches("network", "net") || reaches("net/url", "net") {
		t.Error("a package is banned that is not")
	}
}
