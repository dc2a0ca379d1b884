package backups

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// What a backup of a cluster leaves out. The keys of a tenant with a prefix are the cluster's, and are in it. A tenant with one-sided access has a store of its
// own at each node, a space, which has no replicas and is no group. Nodes with such tenants are not let into a cluster with replicas, but tenants may come later.

const (
	spacesPatience = 5 * time.Second // for one node
	mainSpace      = "main"          // what nodes call that of the cluster
)

// A space is one of a tenant, at one node. Names in JSON are never changed.
type space struct {
	Node  string `json:"node"`
	Space string `json:"space"`
}

// spacesOf asks the nodes that are alive for the spaces of their tenants. silent are the nodes that have not answered.
func spacesOf(ctx context.Context, of *admin.Admin, nodes []admin.ClusterNode) (found []space, silent []string) {
	for i := range nodes {
		n := &nodes[i]
		if n.State != "alive" {
			silent = append(silent, n.ID)
			continue
		}
		within, cancel := context.WithTimeout(ctx, spacesPatience)
		text, err := of.Do(within, n.ID, admin.Tenants, "")
		cancel()
		names, ok := spacesIn(text)
		if err != nil || !ok {
			silent = append(silent, n.ID)
		}
		for _, name := range names {
			found = append(found, space{n.ID, name})
		}
	}
	return found, silent
}

// spacesIn reads the spaces, other than the cluster's, out of what a node says of its tenants.
func spacesIn(text []byte) (names []string, ok bool) {
	var tenants []struct {
		Space string `json:"space"`
	}
	if json.Unmarshal(text, &tenants) != nil {
		return nil, false
	}
	for _, t := range tenants {
		if t.Space != mainSpace && t.Space != "" && !slices.Contains(names, t.Space) {
			names = append(names, t.Space)
		}
	}
	slices.Sort(names)
	return names, true
}

// leftOut says in one line what a backup does not have; "": nothing.
func leftOut(found []space, silent []string) string {
	by := make(map[string][]string)
	for _, s := range found {
		by[s.Space] = append(by[s.Space], s.Node)
	}
	var list []string
	for name, nodes := range by {
		list = append(list, fmt.Sprintf("%s (at %s)", cli.Quote([]byte(name)), strings.Join(nodes, ", ")))
	}
	slices.SortFunc(list, cmp.Compare)
	var text string
	if len(list) > 0 {
		text = "not in this backup: the spaces of tenants " + strings.Join(list, ", ") + ", which have no replicas: kvserver backup --all copies them at each node"
	}
	if len(silent) > 0 {
		if text != "" {
			text += "; "
		}
		text += "whether tenants have spaces of their own, which no backup of a cluster has, was not heard of " + strings.Join(silent, ", ")
	}
	return text
}
