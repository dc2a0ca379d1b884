// Named is a program that names its fabric: it must link no other (link_test.go).
package main

import (
	"context"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

func main() {
	c, err := client.Dial(context.Background(), client.Config{Servers: []string{"127.0.0.1:7400"}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}})
	if err != nil {
		panic(err)
	}
	c.Close()
}
