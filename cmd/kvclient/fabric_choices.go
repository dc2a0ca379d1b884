package main

import (
	"errors"

	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// fabricChoices lists the fabrics that the configuration allows, the one to
// prefer first.
func (a *app) fabricChoices() (list []choice) {
	c := a.cfg.Config
	if c.Fabric != "verbs" {
		soft := choice{fabric: iwarp.New(iwarp.Options{})}
		if c.RequireRDMA {
			soft.err = errors.New("iwarp: it is done in software, and require_rdma is set")
		}
		list = append(list, soft)
	}
	return list
}
