package main

import (
	"errors"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// pickFabrics makes the fabrics that the configuration allows, the one to
// prefer first. It is the only place in this program that knows which there are.
// Whether one of them reaches the server is found out by the client library.
func pickFabrics(c config.Config) ([]rdma.Fabric, error) {
	var list []rdma.Fabric
	if c.Fabric != "verbs" && !c.RequireRDMA {
		list = append(list, iwarp.New(iwarp.Options{}))
	}
	if len(list) == 0 {
		return nil, errors.New("no RDMA device can be used: this program was built without the fabric verbs")
	}
	return list, nil
}
