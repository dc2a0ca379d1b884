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
	{"cmd/kvserver", []string{"internal/server", "internal/inspect", "internal/config", "internal/machine", "internal/memory", "internal/secret", "internal/usage", "internal/version", "rdma/..."}},
	{"cmd/kvclient", []string{"client", "internal/chart", "internal/load/...", "internal/cluster", "internal/config", "internal/doctor", "internal/machine", "internal/memory", "internal/perf", "internal/secret", "internal/usage", "internal/version", "internal/wire", "rdma/...", "store/layout"}},
	{"demo", []string{"client", "rdma/...", "test/node"}},
	{"examples/...", []string{"client", "rdma/...", "examples/internal/...", "internal/memory"}},
	{"test/...", []string{"..."}},
	{"lab/...", []string{"lab/..."}},
	{"lab/siw/...", []string{"lab/...", "rdma/...", "internal/memory"}}, // the two iWARPs meet there
	{"bench", []string{"..."}},                                          // has no code but benchmarks
	{"bench/compare", []string{"..."}},
	{"bench/compare/report", []string{"internal/chart"}},
	{"bench/compare/servers", nil},
	{"bench/compare/clients", []string{"bench/compare/report", "internal/load"}},
	{"internal/server", []string{"store/...", "membership", "rdma/...", "internal/..."}},
	{"client", []string{"rdma/...", "store/layout", "internal/wire", "internal/cluster", "internal/memory", "internal/teeth"}},
	{"client/metrics", []string{"client"}}, // Prometheus, for programs that want it
	{"membership", []string{"internal/cluster", "internal/teeth"}},
	{"store", []string{"store/...", "internal/teeth"}},
	{"store/layout", []string{"internal/teeth"}},
	{"store/...", []string{"store/...", "internal/teeth"}},
	{"rdma/...", []string{"rdma/...", "internal/memory", "internal/teeth"}},
	{"internal/wire", []string{"store/layout"}},
	{"internal/perf", []string{"rdma", "internal/memory"}},
	{"internal/load", nil}, // knows no store
	{"internal/load/rdmakv", []string{"internal/load", "client"}},
	{"internal/chart", nil},
	{"internal/doctor", []string{"client", "internal/shardmap/format", "internal/cluster", "rdma/...", "store/layout"}},
	{"deploy", nil}, // has no code but tests
	{"internal/inspect", []string{"store", "internal/control"}},
	{"internal/control", nil},
	{"internal/cluster", nil},
	{"internal/shardmap", []string{"internal/cluster", "internal/shardmap/format", "internal/teeth"}},
	{"internal/shardmap/format", []string{"internal/cluster"}},
	{"internal/usage", []string{"internal/config"}},
	{"internal/config", nil},
	{"internal/machine", nil},
	{"internal/memory", nil},
	{"internal/teeth", nil},
	{"internal/teeth/mutants", []string{"internal/teeth"}},
	{"internal/secret", nil},
	{"internal/version", nil},
	{"internal/house", nil},
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
	{"store/...", []string{module + "/rdma", module + "/internal/server", module + "/client"},
		"the store is handed memory: it must not know how anybody reads it"},
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

// forTests are packages whose code is made for tests.
var forTests = []string{"rdma/rdmatest", "examples/internal/runs", "test/...", "internal/house"}

// TestImports holds every package to the two lists above.
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

// reaches reports whether dep is the banned package or, for one of another
// module, below it. A ban of our own store does not include store/layout,
// which is made for everybody.
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
