package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/apptest"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/load"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// benchReport is what these tests look at of bench -o json.
type benchReport struct {
	*load.Result
	Bench struct{ Fabric string }
}

// TestBenchCluster: bench measures a cluster as it does a single node.
func TestBenchCluster(t *testing.T) {
	kvclient := cluster(t)
	kvclient(0, "", "cluster", "init", "a", "b")
	for _, line := range []string{"--workload a", "--mix get=1,put=1 --batch 20 --skip-load", "--mix scan=1,delete=1 --skip-load"} {
		args := strings.Fields("bench -o json --records 100 --value-size 1000 --operations 200 --clients 3 " + line)
		var res benchReport
		if err := json.Unmarshal([]byte(kvclient(0, "", args...)), &res); err != nil {
			t.Fatal(err)
		}
		if res.Result == nil || res.Ops != 200 || res.Errors != 0 || len(res.Operations) != 2 || res.Bench.Fabric != "iwarp" {
			t.Errorf("%s: %+v", line, res)
		}
	}
}

// TestBenchInterrupted: when its context ends in the middle, bench prints the
// result of what was done, and ends with an error.
func TestBenchInterrupted(t *testing.T) {
	addr := apptest.Alone(t)
	c, err := client.Dial(t.Context(), client.Config{Servers: []string{addr}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		defer cancel()
		for ctx.Err() == nil { // until the tenth insert is there
			if found, err := c.Exists(ctx, []byte("bench/0000000059")); found || err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	var out, errOut bytes.Buffer
	a := &app.App{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut,
		Env: []string{"RDMAKV_SERVERS=" + addr, "RDMAKV_FABRIC=iwarp", "HOME=/nonexistent"}}
	code := a.Run(ctx, strings.Fields("bench -o json --records 50 --mix insert=1 --warmup 0 --duration 24h"), commands)
	var res benchReport
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatalf("%v: %s%s", err, &out, &errOut)
	}
	if code != cli.ExitInterrupted || !res.Interrupted || res.Ops < 9 || res.Result.Errors != 0 || !strings.Contains(errOut.String(), "interrupted") {
		t.Errorf("exit code %d, %+v, %s", code, res, &errOut)
	}
}
