// Package fabrics is all fabrics of this build, best first. With it a program needs to say no
// more than where its servers are:
//
//	import (
//		"github.com/rdmakv/rdmakv/client"
//		_ "github.com/rdmakv/rdmakv/client/fabrics"
//	)
//
//	c, err := client.Dial(ctx, client.Config{Servers: []string{"kv1:7400"}})
//
// Each connection is then made by shared memory to a server of this host, by an RDMA device
// where one leads to the server, and else by iWARP over TCP, which this program does itself.
// ServerInfo of client/admin says which one is in use, and why no better one. A fabric that
// cannot work on this machine (no device, built without cgo, another system than Linux) costs
// one entry there. Config.RequireRDMA leaves the fabrics out that are done in software.
//
// A program that must not carry all of them (cgo, crypto/tls, rdma-core at run time) does not
// import this package and names its fabrics in Config.Fabrics; it links those alone. The same
// holds for one that needs a fabric's options: a TLS configuration, a directory of shared
// memory, a GID index. Config.Fabrics counts also where this package is imported.
package fabrics

import (
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// All returns the fabrics of this build with their default options, best first: shared memory,
// RDMA devices, iWARP over TCP. Each call makes new ones. The order is that of kvclient's
// "fabric: auto".
func All() []rdma.Fabric {
	return []rdma.Fabric{shm.New(shm.Options{}), verbs.New(verbs.Options{}), iwarp.New(iwarp.Options{NoCRCWithin: true})}
}

// init makes them what a Config without Fabrics uses. What is linked into a Go program follows
// from its imports, so "whatever is here" and "nothing that is not named" can both be had only
// if an import is the choice, and an import can say so by an init function alone.
func init() { base.Builtin = All }
