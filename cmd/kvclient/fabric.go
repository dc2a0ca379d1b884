package main

import (
	"errors"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// pickFabric makes the fabric that the configuration names. It is the only
// place in this program that knows which there are.
func pickFabric(c config.Config) (rdma.Fabric, error) {
	if c.RequireRDMA {
		return nil, errors.New("require_rdma is set, but the only fabric in this version is iwarp, which is done in software")
	}
	return iwarp.New(iwarp.Options{}), nil
}
