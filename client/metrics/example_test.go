package metrics_test

import (
	"context"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/metrics"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// A program registers the collector beside its own metrics, and serves them as it
// always does.
func Example() {
	ctx := context.Background()
	srv, stop, err := launch(ctx, nil) // a server, for the example only
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	c, err := client.Dial(ctx, client.Config{Servers: []string{srv.Addrs()[0].String()}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(c, metrics.Options{}))

	if err := c.Put(ctx, []byte("fruit"), []byte("apple")); err != nil {
		log.Fatal(err)
	}
	families, err := registry.Gather() // what a scrape does
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "rdmakv_client_connected" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output: rdmakv_client_connected 1
}
