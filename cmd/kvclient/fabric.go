package main

import (
	"log/slog"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// pickFabrics makes the fabrics that the configuration allows, the one to
// prefer first. Whether one of them can be had, and reaches the server, is found
// out by the client library, which says so. An error is about the TLS files.
func pickFabrics(c config.Config, log *slog.Logger) ([]rdma.Fabric, error) {
	var list []rdma.Fabric
	if (c.Fabric == "auto" || c.Fabric == "shm") && !c.RequireRDMA {
		if near := newShm(c); near != nil {
			list = append(list, near)
		}
	}
	if c.Fabric == "auto" || c.Fabric == "verbs" {
		list = append(list, newVerbs(c, log))
	}
	if (c.Fabric == "auto" || c.Fabric == "iwarp") && !c.RequireRDMA { // iwarp and require_rdma: refused by internal/config
		tls, err := c.TLSConfig()
		if err != nil {
			return nil, err
		}
		list = append(list, iwarp.New(iwarpOptions(c, tls)))
	}
	return list, nil
}
