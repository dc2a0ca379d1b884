// Command load is clients of a cluster in a guest of the lab: it reads every record
// of a file one-sidedly (-read), or is a station that calls every node and lets
// workers write and read few keys, until its standard input ends.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/test/cluster"
	"github.com/rdmakv/rdmakv/test/linear"
)

func main() {
	var (
		servers = flag.String("servers", "", "HOST:PORT of the nodes n1, n2, ..., separated by commas")
		secret  = flag.String("secret-file", "", "file with the secret")
		fabric  = flag.String("fabric", "verbs", "verbs or iwarp")
		host    = flag.String("host", "", "name of this station")
		seed    = flag.Uint64("seed", 1, "seed of random choices")
		out     = flag.String("out", "", "directory of failing histories")
		read    = flag.String("read", "", "file of records to read back, and no more")
		copies  = flag.Bool("replicas", false, "the keys are in groups of replicas")
	)
	flag.Parse()
	o := cluster.ConnOptions{Addrs: strings.Split(*servers, ","), Fabric: rdma.Fabric(verbs.New(verbs.Options{}))}
	if *fabric == "iwarp" {
		o.Fabric = iwarp.New(iwarp.Options{})
	}
	err := func() error {
		if *secret != "" {
			text, err := os.ReadFile(*secret)
			if err != nil {
				return err
			}
			o.Secret = bytes.TrimSpace(text)
		}
		if *read != "" {
			return readAll(o, *read)
		}
		return station(o, *host, *seed, *out, *copies)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// patience bounds everything that is to be done once.
const patience = 3 * time.Minute

func readAll(o cluster.ConnOptions, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	records, err := cluster.ReadRecords(f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := cluster.Dial(ctx, o)
	if err != nil {
		return err
	}
	err = c.WaitOneSided(ctx)
	// Twice: the first time no place is known. A pass in which this process was not
	// given the processor for a whole lease shows nothing, and is repeated.
	for passes, tries := 0, 0; err == nil && passes < 2; tries++ {
		var table string
		table, err = c.ReadAll(ctx, records)
		if errors.Is(err, cluster.ErrStarved) && tries < 8 {
			fmt.Println("once more:", err)
			err = nil
			continue
		}
		fmt.Println(table)
		passes++
	}
	return errors.Join(err, c.Close())
}

func station(o cluster.ConnOptions, host string, seed uint64, out string, replicas bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var conns []*cluster.Conn
	for i := range 3 {
		o.NoCache = i == 1
		c, err := cluster.Dial(ctx, o)
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	// An emulated processor that is busy with this leaves nothing for the node beside it. A
	// put that has replicas keeps three of them busy.
	pace := 400 * time.Millisecond
	if replicas {
		pace = time.Second
	}
	load := cluster.StartLoad(context.Background(), cluster.LoadOptions{
		Name: "lab-" + host, Seed: seed, Dir: out, Prefix: host, Workers: 3, Pace: pace, Replicas: replicas,
		Stores: []linear.Store{conns[0].Store(), conns[1].Store()},
	})
	s := cluster.NewStation(context.Background(), cluster.StationOptions{Host: host, Conn: conns[2], Load: load, Pace: pace})
	err := cluster.Serve(context.Background(), s, os.Stdin, os.Stdout)
	for _, c := range conns {
		err = errors.Join(err, c.Close())
	}
	return err
}
