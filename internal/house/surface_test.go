package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxClientMethods bounds what a program must read to use a store: what only tools and operators
// need is in client/admin.
const maxClientMethods = 26

// configFields are the exported fields of client.Config. A new one is a decision: whether
// programs need it, or a test could do without.
var configFields = strings.Fields(`Servers Fabrics Devices RequireRDMA Secret Tenant Direct Timeout DialTimeout DialOnce OnWait
	CacheEntries MaxInflight MaxWaiting MaxReads BufferBytes StagingBytes AsyncWindow AsyncBytes PartsAbove PartBytes LeaseKeep Wait Spin Logger`)

// TestSurface: package client shows programs what they need, and nothing for tests.
func TestSurface(t *testing.T) {
	var methods, fields []string
	files, err := filepath.Glob(root + "/client/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && n.Name.IsExported() && receiver(n.Recv.List[0].Type) == "Client" {
					methods = append(methods, n.Name.Name)
				}
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok && n.Name.Name == "Config" {
					for _, f := range s.Fields.List {
						for _, name := range f.Names {
							fields = append(fields, name.Name)
						}
					}
				}
			}
			return true
		})
	}
	if len(methods) == 0 || len(methods) > maxClientMethods {
		t.Errorf("client.Client has %d methods, at most %d: %v", len(methods), maxClientMethods, methods)
	}
	if !slices.Equal(fields, configFields) {
		t.Errorf("client.Config has the fields\n%v\nand should have\n%v", fields, configFields)
	}
}

// TestLinked: a program that names its fabric links no other, and one that imports client/fabrics
// links all.
func TestLinked(t *testing.T) {
	for _, tc := range []struct {
		program string
		has     []string
		not     []string
	}{
		{"named", []string{"client", "rdma/iwarp"}, []string{"rdma/shm", "rdma/verbs", "rdma/verbs/ibv", "client/fabrics", "client/admin"}},
		{"all", []string{"client", "rdma/iwarp", "rdma/shm", "rdma/verbs", "client/fabrics"}, []string{"client/admin", "client/metrics"}},
	} {
		var faults bytes.Buffer
		cmd := exec.Command("go", "list", "-deps", "./testdata/link/"+tc.program)
		cmd.Stderr, cmd.Env = &faults, append(os.Environ(), "GOFLAGS=")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, faults.String())
		}
		deps := strings.Fields(string(out))
		for _, name := range tc.has {
			if !slices.Contains(deps, module+"/"+name) {
				t.Errorf("the program %q does not link %s", tc.program, name)
			}
		}
		for _, name := range tc.not {
			if slices.Contains(deps, module+"/"+name) {
				t.Errorf("the program %q links %s", tc.program, name)
			}
		}
	}
}
