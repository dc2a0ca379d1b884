// All is a program that takes every fabric of its build (link_test.go).
package main

import (
	"context"

	"github.com/rdmakv/rdmakv/client"
	_ "github.com/rdmakv/rdmakv/client/fabrics"
)

func main() {
	c, err := client.Dial(context.Background(), client.Config{Servers: []string{"127.0.0.1:7400"}})
	if err != nil {
		panic(err)
	}
	c.Close()
}
